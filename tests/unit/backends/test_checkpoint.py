"""Reading a target checkpoint: every layout gives the same bank, every fault one clear error."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from specfit.backends.checkpoint import Checkpoint
from specfit.core.errors import CheckpointError
from tests.unit.backends.models import EXPERTS, LAYERS, SIZE, TOP_K, D, V, make_target, random_model


def bank_of(folder: Path) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    bank = torch.empty(LAYERS, EXPERTS, 3 * SIZE * D)
    checkpoint = Checkpoint.open(folder)
    checkpoint.load_experts(bank)
    return bank, checkpoint.load_others(torch.float32)


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    shutil.copytree(random_model()[0], folder)
    return folder


def test_a_block_is_gate_up_down() -> None:
    folder, model = random_model()
    bank, others = bank_of(folder)
    experts = model.model.layers[2].mlp.experts
    gate_up, down = experts.gate_up_proj[5].reshape(-1), experts.down_proj[5].reshape(-1)
    assert torch.equal(bank[2, 5], torch.cat([gate_up, down]))
    assert torch.equal(others["lm_head.weight"], model.lm_head.weight)
    assert not any("experts" in name for name in others)


def test_geometry_is_read_from_the_configuration() -> None:
    geometry = Checkpoint.open(random_model()[0]).geometry(1234)
    assert (geometry.num_layers, geometry.num_experts) == (LAYERS, EXPERTS)
    assert (geometry.experts_per_token, geometry.vocab_size) == (TOP_K, V)
    assert geometry.expert_bytes == 1234


def test_fused_and_sharded_files_give_the_same_bank(tmp_path: Path) -> None:
    reference, _ = bank_of(random_model()[0])
    fused = tmp_path / "fused"
    model = make_target(fused)
    model.save_pretrained(fused, save_original_format=False)
    assert "model.layers.0.mlp.experts.gate_up_proj" in load_file(fused / "model.safetensors")
    assert torch.equal(bank_of(fused)[0], reference)
    sharded = tmp_path / "sharded"
    model.save_pretrained(sharded, max_shard_size="100KB")
    assert len(list(sharded.glob("*.safetensors"))) > 2
    assert torch.equal(bank_of(sharded)[0], reference)


@pytest.mark.parametrize("kind", ["llama", "qwen3_next", None])
def test_other_architectures_are_refused_by_name(copied: Path, kind: str | None) -> None:
    raw = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps(raw | {"model_type": kind}))
    with pytest.raises(CheckpointError, match=str(kind)):
        Checkpoint.open(copied)


@pytest.mark.parametrize(
    "given",
    [
        {"num_experts_per_tok": 0}, {"num_experts": "64"}, {"num_hidden_layers": True},
        {"hidden_size": None}, {"vocab_size": -1}, {"num_experts_per_tok": EXPERTS + 1},
    ],
)  # fmt: skip
def test_sizes_that_no_model_has_are_refused(copied: Path, given: dict[str, object]) -> None:
    raw = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps(raw | given))
    with pytest.raises(CheckpointError, match=r"config\.json"):
        Checkpoint.open(copied)


def test_dense_layers_are_refused(copied: Path) -> None:
    raw = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps(raw | {"mlp_only_layers": [1]}))
    with pytest.raises(CheckpointError, match="mlp_only_layers"):
        Checkpoint.open(copied)


def test_a_missing_expert_is_named(copied: Path) -> None:
    path = copied / "model.safetensors"
    tensors = load_file(path)
    del tensors["model.layers.1.mlp.experts.3.up_proj.weight"]
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match="up_proj of expert 3 of layer 1 is missing"):
        bank_of(copied)


def test_an_expert_of_another_shape_is_refused(copied: Path) -> None:
    path = copied / "model.safetensors"
    tensors = load_file(path)
    name = "model.layers.1.mlp.experts.3.up_proj.weight"
    tensors[name] = tensors[name][:-1].contiguous()
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match="do not belong together"):
        bank_of(copied)


def test_a_truncated_file_is_named(copied: Path) -> None:
    path = copied / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])
    with pytest.raises(CheckpointError, match="damaged or truncated"):
        bank_of(copied)


@pytest.mark.parametrize("damage", [b"", b"{}", b"\xff" * 40, b"\x02" + bytes(7) + b"[]"])
def test_a_file_that_is_no_safetensors_file(copied: Path, damage: bytes) -> None:
    (copied / "model.safetensors").write_bytes(damage)
    with pytest.raises(CheckpointError, match="damaged or truncated"):
        bank_of(copied)


def test_bytes_that_no_tensor_owns_are_an_error(copied: Path) -> None:
    with (copied / "model.safetensors").open("ab") as file:
        file.write(b"more")
    with pytest.raises(CheckpointError, match="its header says"):
        bank_of(copied)


def test_weights_are_converted_to_the_banks_type() -> None:
    reference, _ = bank_of(random_model()[0])
    bank = torch.empty(LAYERS, EXPERTS, 3 * SIZE * D, dtype=torch.bfloat16)
    Checkpoint.open(random_model()[0]).load_experts(bank)
    assert torch.equal(bank, reference.bfloat16())


def test_a_layer_beyond_the_configuration_is_refused(copied: Path) -> None:
    raw = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps(raw | {"num_hidden_layers": LAYERS - 1}))
    bank = torch.empty(LAYERS - 1, EXPERTS, 3 * SIZE * D)
    with pytest.raises(CheckpointError, match="do not belong together"):
        Checkpoint.open(copied).load_experts(bank)


def test_missing_files_are_named(copied: Path) -> None:
    (copied / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"neither model\.safetensors nor its index"):
        Checkpoint.open(copied)
    index = {"weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (copied / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match="00001-of-00002"):
        Checkpoint.open(copied)
    with pytest.raises(CheckpointError, match=r"config\.json is missing"):
        Checkpoint.open(copied / "nowhere")


def test_a_configuration_that_is_no_object(copied: Path) -> None:
    (copied / "config.json").write_text("[1]")
    with pytest.raises(CheckpointError, match="must hold an object"):
        Checkpoint.open(copied)
    (copied / "config.json").write_text("{")
    with pytest.raises(CheckpointError, match="no JSON"):
        Checkpoint.open(copied)


@pytest.mark.parametrize(
    ("generation", "expected"),
    [(None, {7}), ({"eos_token_id": [3, 4]}, {3, 4}), ({"eos_token_id": 5}, {5}), ({}, {7})],
)
def test_stop_tokens(
    copied: Path, generation: dict[str, object] | None, expected: set[int]
) -> None:
    raw = json.loads((copied / "config.json").read_text())
    (copied / "config.json").write_text(json.dumps(raw | {"eos_token_id": 7}))
    (copied / "generation_config.json").unlink(missing_ok=True)
    if generation is not None:
        (copied / "generation_config.json").write_text(json.dumps(generation))
    assert Checkpoint.open(copied).stop_ids == expected
