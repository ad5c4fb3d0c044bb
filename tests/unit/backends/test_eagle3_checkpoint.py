"""Head checkpoints: the faults that published heads and their readers had are refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from specfit.backends.eagle3_checkpoint import OVERRIDES, HeadCheckpoint
from specfit.core.errors import CheckpointError
from tests.unit.backends.models import (
    AUX_LAYERS,
    DRAFT_V,
    HEAD_CONFIG,
    D,
    V,
    head_tensors,
    make_head,
    target_config,
)


def read(
    folder: Path,
    tensors: dict[str, torch.Tensor] | None = None,
    config: dict[str, Any] | None = None,
    **target: Any,
) -> HeadCheckpoint:
    return HeadCheckpoint.load(make_head(folder, tensors, config), target_config(**target))


def without(name: str) -> dict[str, torch.Tensor]:
    return {k: v for k, v in head_tensors().items() if k != name}


def test_everything_is_read(tmp_path: Path) -> None:
    head = read(tmp_path)
    assert head.aux_layer_ids == AUX_LAYERS
    assert head.target_ids.tolist() == head_tensors()["t2d"].nonzero()[:, 0].tolist()
    assert (head.num_heads, head.head_dim) == (4, 16)
    assert "layer.self_attn.q_proj.weight" in head.tensors


def test_the_speculators_format(tmp_path: Path) -> None:
    tensors = {k.replace("midlayer.", "layers.0."): v for k, v in head_tensors().items()}
    tensors["embed_tokens.weight"] = torch.zeros(V, D)
    layer = {k: v for k, v in HEAD_CONFIG.items() if k != "eagle_config"}
    config = {
        "speculators_model_type": "eagle3",
        "transformer_layer_config": layer,
        "norm_before_residual": True,
        "eagle_aux_hidden_state_layer_ids": [1, 2, 4],  # inputs
    }
    head = read(tmp_path, tensors, config)
    assert head.norm_before_residual
    assert head.aux_layer_ids == (0, 1, 3)


WRONG_D2T = {
    "absolute": head_tensors()["t2d"].nonzero()[:, 0],
    "arange": torch.arange(DRAFT_V),
    "zeros": torch.zeros(DRAFT_V, dtype=torch.int64),
    "short": head_tensors()["d2t"][:-1],
    "negative": head_tensors()["d2t"] - 200,
    "shifted": head_tensors()["d2t"] + 1,  # only t2d tells
}


@pytest.mark.parametrize("fault", WRONG_D2T)
def test_a_wrong_d2t_is_refused(tmp_path: Path, fault: str) -> None:
    tensors = head_tensors() | {"d2t": WRONG_D2T[fault]}
    with pytest.raises(CheckpointError, match="d2t must hold"):
        read(tmp_path / "with", tensors)
    if fault != "shifted":
        del tensors["t2d"]
        with pytest.raises(CheckpointError, match="d2t must hold"):
            read(tmp_path / "without", tensors)


def test_a_missing_d2t_is_identity_only_for_equal_vocabularies(tmp_path: Path) -> None:
    tensors = without("d2t")
    del tensors["t2d"]
    with pytest.raises(CheckpointError, match="no d2t"):
        read(tmp_path / "smaller", tensors)
    tensors["lm_head.weight"] = torch.zeros(V, D)
    head = read(tmp_path / "equal", tensors)
    assert head.target_ids.tolist() == list(range(V))


@pytest.mark.parametrize("ids", [[], [0, 1, 1], [0, 1, 4], [-1, 0, 1]])
def test_wrong_auxiliary_layers_are_refused(tmp_path: Path, ids: list[int]) -> None:
    config = HEAD_CONFIG | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": ids}}
    with pytest.raises(CheckpointError, match="auxiliary layers"):
        read(tmp_path, None, config)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": "abc"}}, "must be a list"),
        ({"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, "1"]}}, "must be a list"),
        ({"eagle_config": [0, 1, 2]}, "eagle_config must be an object"),
        ({"rope_parameters": "default"}, "rope_parameters must be an object"),
        ({"rms_norm_eps": "small"}, "rms_norm_eps must be a number"),
        ({"num_attention_heads": [4]}, "num_attention_heads must be a number"),
    ],
)
def test_values_of_another_type_are_refused(
    tmp_path: Path, given: dict[str, object], message: str
) -> None:
    with pytest.raises(CheckpointError, match=message):
        read(tmp_path, None, HEAD_CONFIG | given)


@pytest.mark.parametrize("layers", [2, 3, 4])
def test_small_targets_need_explicit_layers(tmp_path: Path, layers: int) -> None:
    config = {k: v for k, v in HEAD_CONFIG.items() if k != "eagle_config"}
    with pytest.raises(CheckpointError, match="aux_layer_ids in"):
        read(tmp_path, None, config, num_hidden_layers=layers)


def test_large_targets_have_usual_layers(tmp_path: Path) -> None:
    config = {k: v for k, v in HEAD_CONFIG.items() if k != "eagle_config"}
    assert read(tmp_path, None, config, num_hidden_layers=48).aux_layer_ids == (1, 23, 44)


def test_a_head_for_another_target_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="another target"):
        read(tmp_path / "width", None, None, hidden_size=64)
    config = HEAD_CONFIG | {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [0, 1]}}
    with pytest.raises(CheckpointError, match="another target"):
        read(tmp_path / "features", None, config)
    tensors = head_tensors() | {"embed_tokens.weight": torch.zeros(V + 1, D)}
    with pytest.raises(CheckpointError, match=r"embed_tokens\.weight has shape"):
        read(tmp_path / "vocabulary", tensors)


def test_missing_and_unknown_tensors_are_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"missing \['layer\.mlp\.up_proj\.weight'\]"):
        read(tmp_path / "missing", without("midlayer.mlp.up_proj.weight"))
    tensors = head_tensors() | {"layers.1.self_attn.q_proj.weight": torch.zeros(64)}
    with pytest.raises(CheckpointError, match=r"unknown \['layers\.1\.self_attn\.q_proj"):
        read(tmp_path / "unknown", tensors)
    many = head_tensors() | {f"experts.{i}.weight": torch.zeros(1) for i in range(4000)}
    with pytest.raises(CheckpointError, match=r"'experts\.1003\.weight'\] and 3,992 more\.$"):
        read(tmp_path / "many", many)


def test_heads_that_do_not_divide_the_queries_are_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="num_attention_heads = 7"):
        read(tmp_path, None, HEAD_CONFIG | {"num_attention_heads": 7})


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("midlayer.mlp.gate_proj.weight", lambda t: t[:3], "gate_proj"),
        ("midlayer.mlp.up_proj.weight", lambda t: t[:, :3], "up_proj"),
        ("midlayer.hidden_norm.weight", lambda t: t[:3], "hidden_norm"),
        ("midlayer.input_layernorm.weight", lambda t: t[None], "input_layernorm"),
        ("fc.weight", lambda t: t.reshape(-1), "fc"),
        ("fc.weight", lambda t: t.to(torch.int8), "fc.weight must hold numbers with a point"),
    ],
)
def test_no_tensor_is_read_beyond_its_end(
    tmp_path: Path, name: str, change: Callable[[torch.Tensor], torch.Tensor], message: str
) -> None:
    tensors = head_tensors()
    with pytest.raises(CheckpointError, match=message):
        read(tmp_path, tensors | {name: change(tensors[name]).contiguous()})


def test_attention_shapes_are_checked(tmp_path: Path) -> None:
    for name, shape in {"k_proj": (33, 2 * D), "v_proj": (16, 2 * D), "o_proj": (D, 48)}.items():
        tensors = head_tensors() | {f"midlayer.self_attn.{name}.weight": torch.zeros(*shape)}
        with pytest.raises(CheckpointError):
            read(tmp_path / name, tensors)
    tensors = head_tensors() | {"midlayer.self_attn.q_proj.bias": torch.zeros(63)}
    with pytest.raises(CheckpointError, match=r"q_proj\.bias has shape \[63\]"):
        read(tmp_path / "bias", tensors)


def test_scaled_positions_are_refused(tmp_path: Path) -> None:
    config = HEAD_CONFIG | {"rope_scaling": {"rope_type": "yarn", "factor": 4.0}}
    with pytest.raises(CheckpointError, match="'yarn'"):
        read(tmp_path, None, config)


def test_overrides_win(tmp_path: Path) -> None:
    make_head(tmp_path)
    path = tmp_path / OVERRIDES
    path.write_text('{"rope_theta": 5.0, "aux_layer_ids": [0, 2, 3], "feeds_normed": true}')
    head = HeadCheckpoint.load(tmp_path, target_config())
    assert (head.rope_theta, head.aux_layer_ids, head.feeds_normed) == (5.0, (0, 2, 3), True)
    path.write_text('{"rope_thta": 5.0}')
    with pytest.raises(CheckpointError, match="Did you mean 'rope_theta'"):
        HeadCheckpoint.load(tmp_path, target_config())


class RunsCode:
    def __reduce__(self) -> Any:
        return (print, ("a pickle that runs code",))


def test_a_pickle_is_read_as_weights_only(tmp_path: Path) -> None:
    (make_head(tmp_path) / "model.safetensors").unlink()
    pickled = tmp_path / "pytorch_model.bin"
    torch.save(head_tensors(), pickled)
    head = HeadCheckpoint.load(tmp_path, target_config())
    assert torch.equal(head.tensors["fc.weight"], head_tensors()["fc.weight"])
    for content in ({"fc.weight": RunsCode()}, [1], {"a": 1}):
        torch.save(content, pickled)
        with pytest.raises(CheckpointError):
            HeadCheckpoint.load(tmp_path, target_config())
    pickled.write_bytes(b"nothing")
    with pytest.raises(CheckpointError, match="plain values"):
        HeadCheckpoint.load(tmp_path, target_config())


def test_a_safetensors_file_beside_a_pickle_is_taken(tmp_path: Path) -> None:
    (make_head(tmp_path) / "pytorch_model.bin").write_bytes(b"nothing")
    assert HeadCheckpoint.load(tmp_path, target_config()).num_heads == 4
