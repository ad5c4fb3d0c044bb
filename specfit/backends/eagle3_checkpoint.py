"""EAGLE-3 head checkpoints: names, shapes and vocabulary of the common formats, checked.

Read are the formats of EAGLE and AngelSlim (a pickle, read as weights only), SpecForge, speculators
and ModelOpt. Every dimension is taken from the tensors, since published configurations are wrong
now and then; what they say of constants can be overridden by `OVERRIDES` in the head's folder.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import Qwen3MoeConfig

from specfit.backends.checkpoint import read_json, safetensors_files
from specfit.backends.safetensors_file import read_tensors
from specfit.backends.tensor_file import load_plain
from specfit.core.errors import CheckpointError, InvalidInputError, did_you_mean

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
    "fc_norm.0.weight",
    "fc_norm.1.weight",
    "fc_norm.2.weight",
    "layer.self_attn.q_norm.weight",
    "layer.self_attn.k_norm.weight",
    "layer.self_attn.q_proj.bias",
    "layer.self_attn.k_proj.bias",
    "layer.self_attn.v_proj.bias",
    "layer.self_attn.o_proj.bias",
    "layer.mlp.gate_proj.bias",
    "layer.mlp.up_proj.bias",
    "layer.mlp.down_proj.bias",
    "d2t",
    "t2d",
)
OVERRIDES = "specfit-head.json"
"""File in a head's folder whose values win over those of its configuration."""
OVERRIDABLE = ("aux_layer_ids", "rope_theta", "norm_before_residual", "feeds_normed")
LAYER_NORM = re.compile(r"layer\.\w*norm\.weight")
AUX_KEY = "eagle_aux_hidden_state_layer_ids"


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
    feeds_normed : bool
        Whether the hidden state that the head is fed with next is the one after the last norm.
    norms_output : bool
        Whether the last norm comes before the draft vocabulary's logits.
    logit_scale : float
        What the logits are multiplied by.
    """

    tensors: dict[str, Tensor]
    target_ids: Tensor
    aux_layer_ids: tuple[int, ...]
    num_heads: int
    head_dim: int
    rope_theta: float
    rms_norm_eps: float
    norm_before_residual: bool = False
    feeds_normed: bool = False
    norms_output: bool = True
    logit_scale: float = 1.0

    @classmethod
    def load(cls, folder: Path, target: Qwen3MoeConfig) -> HeadCheckpoint:
        """Read the head in a folder and check that it fits the target.

        Raises
        ------
        CheckpointError
            Something is missing, unknown, or belongs to another target.
        """
        raw = read_json(folder / "config.json")
        layer = _table(folder, raw, "transformer_layer_config") or raw
        is_speculators = "speculators_model_type" in raw
        overrides = _overrides(folder)
        tensors = _named(folder, _tensors(folder))
        num_heads, head_dim = _attention_shape(folder, layer, tensors)
        _check_shapes(folder, tensors, target, num_heads, head_dim)
        own_ids = overrides.get("aux_layer_ids")
        ids = _layer_ids(folder, own_ids) if own_ids else _aux_layer_ids(folder, raw, target)
        _check_aux_layers(folder, ids, tensors, target)
        norm_output = raw.get("norm_output")
        return cls(
            tensors=tensors,
            target_ids=_target_ids(folder, tensors, target.vocab_size),
            aux_layer_ids=tuple(ids),
            num_heads=num_heads,
            head_dim=head_dim,
            rope_theta=_number(folder, overrides, "rope_theta", _rope_theta(folder, layer)),
            rms_norm_eps=_number(folder, layer, "rms_norm_eps", 1e-6),
            norm_before_residual=bool(
                overrides.get("norm_before_residual", raw.get("norm_before_residual", False))
            ),
            # One name, two meanings: speculators feed the normed state back, SpecForge norms it
            # before the logits.
            feeds_normed=bool(overrides.get("feeds_normed", is_speculators and norm_output)),
            norms_output=is_speculators or norm_output is not False,
            logit_scale=_number(folder, raw, "logit_scale", 1.0),
        )


def _tensors(folder: Path) -> dict[str, Tensor]:
    """Return the tensors of the safetensors files, or of the pickle where there are none."""
    pickled = folder / "pytorch_model.bin"
    if (folder / "model.safetensors").exists() or not pickled.is_file():
        return dict(read_tensors(safetensors_files(folder)))
    try:
        found = load_plain(pickled)
    except InvalidInputError as error:
        raise CheckpointError(str(error)) from error
    if not isinstance(found, dict) or not all(isinstance(x, Tensor) for x in found.values()):
        raise CheckpointError(f"{pickled} must hold tensors by name; it holds something else.")
    return found


def _overrides(folder: Path) -> dict[str, Any]:
    path = folder / OVERRIDES
    found = read_json(path) if path.is_file() else {}
    for key in found:
        if key not in OVERRIDABLE:
            raise CheckpointError(
                f"{path}: unknown key {key}.{did_you_mean(key, OVERRIDABLE)} Known: "
                f"{', '.join(OVERRIDABLE)}."
            )
    return found


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
            f"{folder} is no EAGLE-3 head that can be run: missing {_few(missing)}, "
            f"unknown {_few(unknown)}."
        )
    for name, tensor in named.items():
        if not (tensor.is_floating_point() or name in ("d2t", "t2d")):
            raise CheckpointError(
                f"{folder}: {name} must hold numbers with a point; got {tensor.dtype}."
            )
    return {k: v.float() if v.is_floating_point() else v for k, v in named.items()}


def _attention_shape(
    folder: Path, layer: dict[str, Any], tensors: dict[str, Tensor]
) -> tuple[int, int]:
    rows = tensors["layer.self_attn.q_proj.weight"].shape[0]
    num_heads = int(_number(folder, layer, "num_attention_heads", 0))
    if num_heads < 1 or rows % num_heads:
        raise CheckpointError(
            f"{folder}: num_attention_heads = {num_heads} does not divide the {rows} query rows."
        )
    head_dim = rows // num_heads
    keys, values = (len(tensors[f"layer.self_attn.{x}_proj.weight"]) for x in "kv")
    if keys != values or keys % head_dim or num_heads % (keys // head_dim):
        raise CheckpointError(
            f"{folder}: {keys} key and {values} value rows do not make heads of {head_dim} that "
            f"{num_heads} query heads can share."
        )
    return num_heads, head_dim


def _check_shapes(
    folder: Path, tensors: dict[str, Tensor], target: Qwen3MoeConfig, num_heads: int, head_dim: int
) -> None:
    size = tensors["norm.weight"].numel()
    biases = [name for name in tensors if name.endswith("bias")]
    expected = {
        **{name: (len(tensors[name.replace("bias", "weight")]),) for name in biases},
        "layer.self_attn.o_proj.weight": (size, num_heads * head_dim),
        **{name: (size,) for name in tensors if LAYER_NORM.fullmatch(name)},
        **{name: (target.hidden_size,) for name in tensors if name.startswith("fc_norm.")},
        "layer.self_attn.q_norm.weight": (head_dim,),
        "layer.self_attn.k_norm.weight": (head_dim,),
        "layer.mlp.down_proj.weight": (size, None),
        "layer.mlp.gate_proj.weight": (tensors["layer.mlp.down_proj.weight"].shape[-1], size),
        "layer.mlp.up_proj.weight": (tensors["layer.mlp.down_proj.weight"].shape[-1], size),
        "fc.weight": (size, None),
        "layer.self_attn.q_proj.weight": (None, 2 * size),
        "layer.self_attn.k_proj.weight": (None, 2 * size),
        "layer.self_attn.v_proj.weight": (None, 2 * size),
        "lm_head.weight": (None, size),
        "embed_tokens.weight": (target.vocab_size, size),
    }
    for name, shape in expected.items():
        actual = tuple(tensors[name].shape) if name in tensors else shape
        if len(shape) != len(actual) or any(
            want is not None and want != got for want, got in zip(shape, actual, strict=True)
        ):
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


def _few(names: list[str], most: int = 8) -> str:
    """Name a few tensors and count the rest: a whole model has thousands that a head has not."""
    shown = str(names[:most]) if names else "nothing"
    return shown + (f" and {len(names) - most:,} more" if len(names) > most else "")


def _aux_layer_ids(folder: Path, raw: dict[str, Any], target: Qwen3MoeConfig) -> list[int]:
    """Return the target layers whose outputs are the features, as the configuration has them.

    ``eagle_config`` counts outputs; the speculators format has its list at the top and counts
    inputs.
    """
    layers = target.num_hidden_layers
    nested = _table(folder, raw, "eagle_config")
    if AUX_KEY in nested:
        return _layer_ids(folder, nested[AUX_KEY])
    if AUX_KEY in raw:
        return [i - 1 for i in _layer_ids(folder, raw[AUX_KEY])]
    if layers >= 8:
        return [1, layers // 2 - 1, layers - 4]
    raise CheckpointError(
        f"{folder}: config.json names no eagle_config.{AUX_KEY}, and a target of {layers} layers "
        f"has no usual choice. Name them as aux_layer_ids in {folder / OVERRIDES}."
    )


def _table(folder: Path, raw: dict[str, Any], key: str) -> dict[str, Any]:
    """Return a table of a configuration; an empty one where it gives none."""
    value = raw.get(key) or {}
    if not isinstance(value, dict):
        raise CheckpointError(f"{folder}: {key} must be an object; got {value!r}.")
    return value


def _layer_ids(folder: Path, value: Any) -> list[int]:
    if not isinstance(value, list) or not all(type(i) is int for i in value):
        raise CheckpointError(f"{folder}: {AUX_KEY} must be a list of layers; got {value!r}.")
    return value


def _check_aux_layers(
    folder: Path, ids: list[int], tensors: dict[str, Tensor], target: Qwen3MoeConfig
) -> None:
    layers, width = target.num_hidden_layers, len(ids) * target.hidden_size
    if len(set(ids)) != len(ids) or not all(0 <= i < layers for i in ids) or not ids:
        raise CheckpointError(
            f"{folder}: auxiliary layers must be distinct and 0 to {layers - 1}; got {ids}."
        )
    norms = [name for name in tensors if name.startswith("fc_norm.")]
    if norms and len(norms) != len(ids):
        raise CheckpointError(f"{folder}: {len(norms)} fc_norm for {len(ids)} auxiliary layers.")
    if width != tensors["fc.weight"].shape[1]:
        raise CheckpointError(
            f"{folder}: fc reads {tensors['fc.weight'].shape[1]} features, but {len(ids)} layers "
            f"of the target give {width}. It is a head for another target."
        )


def _rope_theta(folder: Path, layer: dict[str, Any]) -> float:
    parameters = _table(folder, layer, "rope_parameters") or _table(folder, layer, "rope_scaling")
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind != "default":
        raise CheckpointError(
            f"{folder}: positions are scaled by '{kind}'; only plain rotary positions are run."
        )
    return _number(folder, parameters, "rope_theta", _number(folder, layer, "rope_theta", 10000.0))


def _number(folder: Path, table: dict[str, Any], key: str, default: float) -> float:
    """Return a number of a configuration, the default where it gives none."""
    value = table.get(key)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise CheckpointError(f"{folder}: {key} must be a number; got {value!r}.")
    return float(value)
