"""Experts read from a file into slots: the right bytes, or one clear error."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from specfit.backends import direct_file, load
from specfit.backends.direct_file import (
    ALIGNMENT,
    DIRECT,
    REFUSED,
    DirectFile,
    DirectWriter,
    aligned_bytes,
)
from specfit.backends.expert_layout import PlainLayout
from specfit.backends.file_bank import FileBank
from specfit.backends.packed import bring_experts
from specfit.backends.ssd import PART_BYTES, SsdDevice
from specfit.backends.store import ExpertStore
from specfit.core.cache import make_cache
from specfit.core.errors import BackendError, CheckpointError, InvalidInputError
from specfit.core.experts import ModelGeometry
from specfit.policies.eagle3 import Eagle3
from tests.unit.backends.models import decode, random_model, stock_text
from tests.unit.backends.test_torch_backend import REQUEST

F32 = torch.float32
SIZES = (3, 1024, PART_BYTES // 2 + 5)
"""Numbers of a block: off the grid of direct reads, on it, and more than a part."""


@pytest.fixture(params=[True, False], ids=["direct", "refused"])
def io(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> str:
    """Return how files are read: as the system does it, and where it refuses direct I/O."""
    if request.param:
        (tmp_path / "probe").write_bytes(bytes(ALIGNMENT))
        return DirectFile(tmp_path / "probe").io
    monkeypatch.delattr(os, "O_DIRECT", raising=False)
    return REFUSED


@pytest.fixture
def device() -> Iterator[SsdDevice]:
    device = SsdDevice(num_threads=3)
    yield device
    device.close()


def bank_in(folder: Path, size: int, layers: int = 2, experts: int = 6) -> FileBank:
    numbers = torch.arange(1.0, layers * experts * size + 1)
    path = folder / f"{size}.bin"
    path.write_bytes(numbers.numpy().tobytes())
    return FileBank.open(path, (layers, experts, size), F32)


def slots_of(device: SsdDevice, bank: FileBank, count: int) -> torch.Tensor:
    return device.allocate((count, bank.shape[2]), bank.dtype)


@pytest.mark.parametrize("size", SIZES)
def test_every_block_arrives(device: SsdDevice, tmp_path: Path, size: int, io: str) -> None:
    bank = bank_in(tmp_path, size)
    pool = slots_of(device, bank, 12)
    pairs = [(bank[i // 6][i % 6], pool[i]) for i in range(12)]
    device.wait(device.copy(pairs, None))
    assert torch.equal(pool.view(-1), torch.arange(1.0, 12 * size + 1))
    assert device.counters.num_copies == 12
    assert device.counters.num_bytes == 12 * size * 4
    assert 0 < device.counters.busy_s
    assert device.counters.stall_s > 0
    said = device.describe_link()
    assert (said["io"], said["threads"], said["kind"]) == (io, 3, "measured")


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> tuple[DirectFile, np.ndarray]:
    data = np.random.default_rng(0).integers(0, 256, 3 * ALIGNMENT + 7, dtype=np.uint8)
    path = tmp_path_factory.mktemp("direct") / "numbers"
    path.write_bytes(data.tobytes())
    return DirectFile(path), data


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_any_span_is_read_to_any_place(numbers: tuple[DirectFile, np.ndarray], data: Any) -> None:
    file, expected = numbers
    edges = st.sampled_from([0, 1, 512, ALIGNMENT, 2 * ALIGNMENT, 3 * ALIGNMENT, len(expected)])
    first, last = sorted(data.draw(st.tuples(edges, edges | st.integers(0, len(expected)))))
    shift = data.draw(st.sampled_from([0, 4, 64]))
    target = aligned_bytes(last - first + shift)[shift:]
    file.read(first, target)
    assert np.array_equal(target.numpy(), expected[first:last])


def test_slots_lie_on_the_grid(device: SsdDevice) -> None:
    for size in (1, 5, 1024, 100_000):
        assert device.allocate((3, size), torch.bfloat16).data_ptr() % ALIGNMENT == 0
    assert device.allocate((2, 3), F32).shape == (2, 3)


def test_reads_on_the_grid_need_no_buffer(
    device: SsdDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = bank_in(tmp_path, 1024)
    if bank.file.io != DIRECT:
        pytest.skip("this file system refuses direct I/O")
    monkeypatch.setattr(DirectFile, "_buffer", None)
    pool = slots_of(device, bank, 1)
    device.wait(device.copy([(bank[1][2], pool[0])], None))
    assert torch.equal(pool[0], torch.arange(8 * 1024 + 1.0, 9 * 1024 + 1))


@pytest.mark.parametrize("size", SIZES)
def test_a_file_that_loses_bytes_is_one_clear_error(
    device: SsdDevice, tmp_path: Path, size: int, io: str
) -> None:
    bank = bank_in(tmp_path, size)
    os.truncate(bank.file.path, bank.file.num_bytes - 2 * size * 4 - 1)
    pool = slots_of(device, bank, 12)
    with pytest.raises(
        BackendError, match=r"bin ends at byte \d+, but a copy needs .*packed again"
    ):
        device.wait(device.copy([(bank[1][i], pool[i]) for i in range(6)], None))
    device.wait(device.copy([(bank[0][3], pool[0])], None))
    assert pool[0, 0] == 3 * size + 1


def test_a_failing_disk_is_one_clear_error(
    device: SsdDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = bank_in(tmp_path, 1024)
    pool = slots_of(device, bank, 6)
    pairs = [(bank[0][i], pool[i]) for i in range(6)]
    preadv, fails = os.preadv, {2 * 4096}

    def read(file: int, views: list[memoryview], offset: int) -> int:
        if offset in fails:
            raise OSError(5, "Input/output error")
        return preadv(file, views, offset)

    monkeypatch.setattr(direct_file.os, "preadv", read)
    with pytest.raises(BackendError, match=r"a copy of expert weights failed: .*Input/output"):
        device.wait(device.copy(pairs, None))
    fails.clear()
    device.wait(device.copy(pairs, None))
    assert torch.equal(pool.view(-1), torch.arange(1.0, 6 * 1024 + 1))


def test_a_read_that_comes_in_pieces_is_gone_on_with(
    device: SsdDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = bank_in(tmp_path, 4096)
    preadv = os.preadv

    def read(file: int, views: list[memoryview], offset: int) -> int:
        return preadv(file, [views[0][:ALIGNMENT]], offset)

    monkeypatch.setattr(direct_file.os, "preadv", read)
    pool = slots_of(device, bank, 1)
    device.wait(device.copy([(bank[1][0], pool[0])], None))
    assert pool[0, [0, -1]].tolist() == [6 * 4096 + 1, 7 * 4096]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("who", ["_move", "_submit"])
def test_a_killed_copy_thread_is_an_error_and_the_next_copy_works(
    device: SsdDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str
) -> None:
    bank = bank_in(tmp_path, 1024)
    pool = slots_of(device, bank, 6)

    def end(*arguments: object) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(device, who, end)
        with pytest.raises(BackendError, match="the copy thread has ended"):
            device.wait(device.copy([(bank[0][0], pool[0])], None))
    device.wait(device.copy([(bank[0][5], pool[0])], None))
    assert pool[0, 0] == 5 * 1024 + 1


def test_a_killed_reader_is_an_error_and_the_next_copy_works(
    device: SsdDevice, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = bank_in(tmp_path, 1024)
    pool = slots_of(device, bank, 6)

    def end(self: DirectFile, offset: int, target: torch.Tensor) -> None:
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(DirectFile, "read", end)
        with pytest.raises(BackendError, match="a copy of expert weights failed"):
            device.wait(device.copy([(bank[0][0], pool[0])], None))
    device.wait(device.copy([(bank[0][5], pool[0])], None))
    assert pool[0, 0] == 5 * 1024 + 1


def test_a_store_over_a_file_does_what_one_over_memory_does(
    device: SsdDevice, tmp_path: Path
) -> None:
    shape = ModelGeometry(2, 6, experts_per_token=2, expert_bytes=12, vocab_size=9)
    bank = bank_in(tmp_path, 3)
    store = ExpertStore(bank, device, make_cache("lru:3", shape), shape)
    memory = torch.arange(1.0, 37).view(2, 6, 3)
    twin = ExpertStore(memory, SsdDevice(), make_cache("lru:3", shape), shape)
    rng = np.random.default_rng(3)
    for _ in range(30):
        layer, size = int(rng.integers(2)), int(rng.integers(1, 7))
        experts = np.sort(rng.permutation(6)[:size])
        for wave, other in zip(
            store.waves(layer, experts), twin.waves(layer, experts), strict=True
        ):
            assert wave.experts.tolist() == other.experts.tolist()
            found = store.pools[layer][torch.from_numpy(wave.slots)]
            assert torch.equal(found, memory[layer, torch.from_numpy(wave.experts)])
        store.end_pass()
        twin.end_pass()
        assert store.slot_bytes_are_current()
    assert store.device.counters.num_bytes == twin.device.counters.num_bytes
    twin.device.close()


def test_a_short_or_missing_file_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"cannot read .*none\.bin"):
        FileBank.open(tmp_path / "none.bin", (1, 1, 4), F32)
    (tmp_path / "short.bin").write_bytes(bytes(15))
    with pytest.raises(CheckpointError, match="must hold 16 bytes; got 15"):
        FileBank.open(tmp_path / "short.bin", (1, 1, 4), F32)
    with pytest.raises(IndexError):
        bank_in(tmp_path, 3)[2][0]
    with pytest.raises(InvalidInputError, match="num_threads"):
        SsdDevice(num_threads=0)


def test_a_system_that_cannot_read_at_a_position_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank = bank_in(tmp_path, 3)
    monkeypatch.delattr(os, "preadv")
    with pytest.raises(InvalidInputError, match=r"os\.preadv"):
        DirectFile(bank.file.path)


def test_a_backend_over_a_file_writes_the_targets_text(tmp_path: Path) -> None:
    folder = random_model()[0]
    for cache in ("lru:5", "none"):
        with load(folder, device="ssd", packed=tmp_path, cache=cache) as backend:
            assert decode(backend, Eagle3(3, 2, 8), REQUEST).tokens == stock_text(REQUEST)
            assert backend.device.counters.num_bytes > 0
            assert backend._store.slot_bytes_are_current()
            assert backend.describe()["link"]["what"] == "reads from disk, 8 at once"


def test_experts_on_disk_need_a_packed_file() -> None:
    with pytest.raises(InvalidInputError, match="--packed FOLDER"):
        load(random_model()[0], device="ssd")


def test_a_lost_file_ends_the_request_and_the_next_one_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = random_model()[0]
    preadv, is_broken = os.preadv, [True]

    def read(file: int, views: list[memoryview], offset: int) -> int:
        if is_broken[0] and offset > 50_000:
            raise OSError(5, "Input/output error")
        return preadv(file, views, offset)

    with load(folder, device="ssd", packed=tmp_path, cache="lru:5") as backend:
        monkeypatch.setattr(direct_file.os, "preadv", read)
        with pytest.raises(BackendError, match=r"layer \d: a copy of expert weights failed"):
            decode(backend, Eagle3(3, 2, 8), REQUEST)
        is_broken[0] = False
        assert decode(backend, Eagle3(3, 2, 8), REQUEST).tokens == stock_text(REQUEST)


def test_the_bank_of_a_device_that_reads_files_is_a_file(tmp_path: Path) -> None:
    from specfit.backends.checkpoint import Checkpoint

    checkpoint = Checkpoint.open(random_model()[0])
    bank = bring_experts(checkpoint, SsdDevice(), PlainLayout(F32), tmp_path)
    assert isinstance(bank, FileBank)
    assert bank.shape == torch.Size(
        bring_experts(checkpoint, SsdDevice(), PlainLayout(F32), tmp_path).shape
    )


@pytest.mark.parametrize(("offset", "size"), [(0, 8192), (4096, 4096), (100, 5000), (8192, 10)])
def test_what_is_written_is_there_and_the_rest_stays(
    tmp_path: Path, offset: int, size: int
) -> None:
    path = tmp_path / "file.bin"
    path.write_bytes(b"x" * 20_000)
    written = aligned_bytes(size)
    written.copy_(torch.randint(256, (size,), dtype=torch.uint8))
    with DirectWriter(path, 20_000) as file:
        file.write(offset, written)
    expected = b"x" * offset + written.numpy().tobytes() + b"x" * (20_000 - offset - size)
    assert path.read_bytes() == expected


def test_many_threads_write_one_file(tmp_path: Path) -> None:
    path, part = tmp_path / "file.bin", 2**16
    data = aligned_bytes(16 * part)
    data.copy_(torch.randint(256, (16 * part,), dtype=torch.uint8))
    with DirectWriter(path, len(data)) as file, ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: file.write(i * part, data[i * part : (i + 1) * part]), range(16)))
    assert path.read_bytes() == data.numpy().tobytes()
