"""EAGLE-3 head checkpoints: names, shapes and vocabulary of the common formats, checked.

Every dimension is taken from the tensors, since published configurations are wrong now and then.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Qwen3MoeConfig

from specfit.backends.checkpoint import read_json, safetensors_files
from specfit.backends.tensor_file import read_tensors
from specfit.core.errors import CheckpointError

REQUIRED = (
    "fc.weight",
    "norm.weight",
    "lm_head.weight",
    "layer.input_layernorm.weight",
    "layer.hidden_norm.weight",
    "layer.post_attention_layernorm.weight",
    "layer.self_attn.q_proj.weight",
    "layer.self_attn.k_proj.weight",
    "layer.self_attn.v_proj.weight",
    "layer.self_attn.o_proj.weight",
    "layer.mlp.gate_proj.weight",
    "layer.mlp.up_proj.weight",
    "layer.mlp.down_proj.weight",
)
OPTIONAL = (
    "embed_tokens.weight",
    "input_norm.weight",
    "layer.self_attn.q_norm.weight",
    "layer.self_attn.k_norm.weight",
    "d2t",
    "t2d",
)


@dataclass(frozen=True, eq=False)
class HeadCheckpoint:
    """A head that fits a target.

    Parameters
    ----------
    tensors : dict of str to Tensor
        By the names of `REQUIRED` and `OPTIONAL`.
    target_ids : int64 Tensor [Vd]
        Target vocabulary id of each draft vocabulary id, ascending.
    aux_layer_ids : tuple of int
        Target layers whose outputs, side by side, are the features.
    num_heads, head_dim : int
        Shape of the attention.
    rope_theta, rms_norm_eps : float
        Constants of the configuration.
    norm_before_residual : bool
        Whether the residual is the normed hidden state.
    """

    tensors: dict[str, Tensor]
    target_ids: Tensor
    aux_layer_ids: tuple[int, ...]
    num_heads: int
    head_dim: int
    rope_theta: float
    rms_norm_eps: float
    norm_before_residual: bool

    @classmethod
    def load(cls, folder: Path, target: Qwen3MoeConfig) -> HeadCheckpoint:
        """Read the head in a folder and check that it fits the target.

        Raises
        ------
        CheckpointError
            Something is missing, unknown, or belongs to another target.
        """
        raw = read_json(folder / "config.json")
        layer = raw.get("transformer_layer_config", raw)
        tensors = _named(folder, dict(read_tensors(safetensors_files(folder))))
        num_heads, head_dim = _attention_shape(folder, layer, tensors)
        _check_shapes(folder, tensors, target)
        return cls(
            tensors=tensors,
            target_ids=_target_ids(folder, tensors, target.vocab_size),
            aux_layer_ids=_aux_layer_ids(folder, raw, tensors, target),
            num_heads=num_heads,
            head_dim=head_dim,
            rope_theta=_rope_theta(layer),
            rms_norm_eps=float(layer.get("rms_norm_eps", 1e-6)),
            norm_before_residual=bool(raw.get("norm_before_residual", False)),
        )


def _named(folder: Path, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Bring the names of the known formats to one form; refuse what no code here would use."""
    named = {}
    for name, tensor in tensors.items():
        short = name.removeprefix("model.")
        for prefix in ("midlayer.", "layers.0."):
            short = "layer." + short.removeprefix(prefix) if short.startswith(prefix) else short
        if "rotary_emb" not in short:
            named[short] = tensor
    missing = [name for name in REQUIRED if name not in named]
    unknown = [name for name in named if name not in REQUIRED + OPTIONAL]
    if missing or unknown:
        raise CheckpointError(
            f"{folder} is no EAGLE-3 head that can be run: missing {missing or 'nothing'}, "
            f"unknown {unknown or 'nothing'}."
        )
    return {k: v.float() if v.is_floating_point() else v for k, v in named.items()}


def _attention_shape(
    folder: Path, layer: dict[str, Any], tensors: dict[str, Tensor]
) -> tuple[int, int]:
    rows = tensors["layer.self_attn.q_proj.weight"].shape[0]
    num_heads = int(layer.get("num_attention_heads", 0))
    if num_heads < 1 or rows % num_heads:
        raise CheckpointError(
            f"{folder}: num_attention_heads = {num_heads} does not divide the {rows} query rows."
        )
    return num_heads, rows // num_heads


def _check_shapes(folder: Path, tensors: dict[str, Tensor], target: Qwen3MoeConfig) -> None:
    size = tensors["norm.weight"].numel()
    expected = {
        "fc.weight": (size, None),
        "layer.self_attn.q_proj.weight": (None, 2 * size),
        "layer.self_attn.k_proj.weight": (None, 2 * size),
        "layer.self_attn.v_proj.weight": (None, 2 * size),
        "lm_head.weight": (None, size),
        "embed_tokens.weight": (target.vocab_size, size),
    }
    for name, shape in expected.items():
        actual = tuple(tensors[name].shape) if name in tensors else shape
        if any(want is not None and want != got for want, got in zip(shape, actual, strict=True)):
            raise CheckpointError(
                f"{folder}: {name} has shape {list(actual)}; expected "
                f"{['any' if s is None else s for s in shape]}. Is it a head for this target?"
            )
    if "embed_tokens.weight" not in tensors and size != target.hidden_size:
        raise CheckpointError(
            f"{folder} brings no embedding and has hidden size {size}, the target "
            f"{target.hidden_size}. It is a head for another target."
        )


def _target_ids(folder: Path, tensors: dict[str, Tensor], vocab_size: int) -> Tensor:
    """Return the target id of each draft id; ``d2t`` holds offsets."""
    size = tensors["lm_head.weight"].shape[0]
    own = torch.arange(size)
    offsets = tensors.get("d2t")
    if offsets is None:
        if size != vocab_size:
            raise CheckpointError(
                f"{folder} drafts {size} of {vocab_size} tokens but has no d2t that says which."
            )
        return own
    ids = own + offsets.long() if offsets.shape == own.shape else own[:0]
    known = tensors.get("t2d")
    is_sound = (
        len(ids) == size
        and bool((ids.diff() > 0).all())
        and 0 <= int(ids[0])
        and int(ids[-1]) < vocab_size
        and (known is None or torch.equal(known.nonzero()[:, 0], ids))
    )
    is_identity = size < vocab_size and not offsets.any()
    if not is_sound or (is_identity and known is None):
        raise CheckpointError(
            f"{folder}: d2t must hold, for each of {size} draft ids, its offset to an ascending "
            f"target id below {vocab_size} that t2d marks. It does not; the head or its d2t is for "
            f"another vocabulary."
        )
    return ids


def _aux_layer_ids(
    folder: Path, raw: dict[str, Any], tensors: dict[str, Tensor], target: Qwen3MoeConfig
) -> tuple[int, ...]:
    """Return the target layers whose outputs are the features.

    ``eagle_config`` counts outputs; a top-level list, of the speculators format, counts inputs.
    """
    key, layers = "eagle_aux_hidden_state_layer_ids", target.num_hidden_layers
    nested = raw.get("eagle_config") or {}
    if key in nested:
        ids = [int(i) for i in nested[key]]
    elif key in raw:
        ids = [int(i) - 1 for i in raw[key]]
    elif layers >= 8:
        ids = [1, layers // 2 - 1, layers - 4]
    else:
        raise CheckpointError(
            f"{folder}: config.json names no eagle_config.{key}, and a target of {layers} layers "
            f"has no usual choice. Name the layers."
        )
    width = len(ids) * target.hidden_size
    if len(set(ids)) != len(ids) or not all(0 <= i < layers for i in ids) or not ids:
        raise CheckpointError(
            f"{folder}: auxiliary layers must be distinct and 0 to {layers - 1}; got {ids}."
        )
    if width != tensors["fc.weight"].shape[1]:
        raise CheckpointError(
            f"{folder}: fc reads {tensors['fc.weight'].shape[1]} features, but {len(ids)} layers "
            f"of the target give {width}. It is a head for another target."
        )
    return tuple(ids)


def _rope_theta(layer: dict[str, Any]) -> float:
    parameters = layer.get("rope_parameters") or {}
    return float(parameters.get("rope_theta", layer.get("rope_theta", 10000.0)))
