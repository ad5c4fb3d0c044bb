"""Packed experts: written once, resumable, mapped later, and never those of another checkpoint."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from specfit.backends import load
from specfit.backends import packed as packed_module
from specfit.backends.checkpoint import Checkpoint
from specfit.backends.cpu import CpuDevice
from specfit.backends.expert_layout import PlainLayout
from specfit.backends.packed import PackedExperts, bring_experts
from specfit.core.errors import CheckpointError
from specfit.policies.eagle3 import Eagle3
from tests.unit.backends.models import LAYERS, decode, late_device, random_model, stock_text
from tests.unit.backends.test_checkpoint import bank_of
from tests.unit.backends.test_torch_backend import REQUEST

F32 = PlainLayout(torch.float32)


@pytest.fixture
def model(tmp_path: Path) -> Checkpoint:
    shutil.copytree(random_model()[0], tmp_path / "model")
    return Checkpoint.open(tmp_path / "model")


@pytest.fixture
def expected() -> torch.Tensor:
    return bank_of(random_model()[0])[0]


def test_packed_is_what_is_loaded(
    model: Checkpoint, tmp_path: Path, expected: torch.Tensor
) -> None:
    steps: list[tuple[int, int]] = []
    where = tmp_path / "packed"
    bank = bring_experts(model, CpuDevice(), F32, where, lambda *step: steps.append(step))
    assert torch.equal(bank, expected)
    assert steps == [(i + 1, LAYERS) for i in range(LAYERS)]
    packed = PackedExperts.of(model, F32, where)
    assert packed.path.stat().st_size == packed.num_bytes == expected.nbytes
    packed.verify()
    again: list[tuple[int, int]] = []
    mapped = bring_experts(model, CpuDevice(), F32, where, lambda *step: again.append(step))
    assert torch.equal(mapped, expected)
    assert again == []
    read = bring_experts(model, late_device(), F32, where, lambda *step: again.append(step))
    assert torch.equal(read, expected)
    assert len(again) == LAYERS


def test_a_killed_packing_goes_on_where_it_was(
    model: Checkpoint, tmp_path: Path, expected: torch.Tensor
) -> None:
    class KilledError(Exception):
        pass

    def kill(done: int, count: int) -> None:
        if done == 2:
            raise KilledError

    where = tmp_path / "packed"
    with pytest.raises(KilledError):
        bring_experts(model, CpuDevice(), F32, where, kill)
    packed = PackedExperts.of(model, F32, where)
    assert len(packed.layers()) == 2
    with packed.path.open("ab") as file:
        file.write(b"half of a layer")
    steps: list[tuple[int, int]] = []
    bank = bring_experts(model, CpuDevice(), F32, where, lambda *step: steps.append(step))
    assert steps == [(3, LAYERS), (4, LAYERS)]
    assert torch.equal(bank, expected)
    packed.verify()


def test_a_changed_block_is_found(model: Checkpoint, tmp_path: Path) -> None:
    bring_experts(model, CpuDevice(), F32, tmp_path)
    packed = PackedExperts.of(model, F32, tmp_path)
    with packed.path.open("r+b") as file:
        file.seek(packed.layer_bytes + 5)
        file.write(b"\x7f")
    with pytest.raises(CheckpointError, match="layer 1 is not what was packed"):
        packed.verify()


def test_a_shortened_file_is_found_at_once(model: Checkpoint, tmp_path: Path) -> None:
    bring_experts(model, CpuDevice(), F32, tmp_path)
    packed = PackedExperts.of(model, F32, tmp_path)
    with packed.path.open("r+b") as file:
        file.truncate(packed.num_bytes - 1)
    with pytest.raises(CheckpointError, match="Remove both and start again"):
        bring_experts(model, CpuDevice(), F32, tmp_path)


def test_another_checkpoint_is_refused(model: Checkpoint, tmp_path: Path) -> None:
    where = tmp_path / "packed"
    bring_experts(model, CpuDevice(), F32, where)
    (path,) = model.files
    path.touch()
    with pytest.raises(CheckpointError, match="another checkpoint"):
        bring_experts(model, CpuDevice(), F32, where)


def test_types_lie_side_by_side(model: Checkpoint, tmp_path: Path, expected: torch.Tensor) -> None:
    bring_experts(model, CpuDevice(), F32, tmp_path)
    half = bring_experts(model, CpuDevice(), PlainLayout(torch.bfloat16), tmp_path)
    assert torch.equal(half, expected.bfloat16())
    assert len(list(tmp_path.glob("experts.*.bin"))) == 2


def test_no_room_is_said_before_anything_is_written(
    model: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=1000))
    with pytest.raises(CheckpointError, match=r"packing needs .* GiB are free"):
        bring_experts(model, CpuDevice(), F32, tmp_path / "packed")


def test_too_little_host_memory_is_said_before_loading(
    model: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (packed_module.available_bytes() or 2**30) > 2**20
    monkeypatch.setattr(packed_module, "available_bytes", lambda: 1000)
    for device, where in ((CpuDevice(), None), (late_device(), tmp_path)):
        with pytest.raises(CheckpointError, match=r"GiB of host memory.*--packed"):
            bring_experts(model, device, F32, where)
    bring_experts(model, CpuDevice(), F32, tmp_path)  # mapped: it need not fit


def test_a_backend_over_packed_experts_writes_the_targets_text(
    model: Checkpoint, tmp_path: Path
) -> None:
    for _ in range(2):
        with load(model.folder, packed=tmp_path / "packed", cache="lru:5") as backend:
            assert decode(backend, Eagle3(3, 2, 8), REQUEST).tokens == stock_text(REQUEST)


def test_a_manifest_that_is_no_manifest(model: Checkpoint, tmp_path: Path) -> None:
    bring_experts(model, CpuDevice(), F32, tmp_path)
    path = PackedExperts.of(model, F32, tmp_path).manifest_path
    path.write_text(json.dumps({"format": 2}))
    with pytest.raises(CheckpointError, match="another checkpoint"):
        bring_experts(model, CpuDevice(), F32, tmp_path)
