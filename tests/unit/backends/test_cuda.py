"""The CUDA adapter without a GPU: every call it makes exists, and comes in its place."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from specfit.backends import cuda as adapter
from specfit.backends import experts, load
from specfit.backends.checkpoint import Checkpoint
from specfit.backends.cuda import CudaDevice
from specfit.backends.eagle3_checkpoint import HeadCheckpoint
from specfit.backends.torch_backend import TorchBackend
from specfit.core.errors import BackendError, InvalidInputError
from specfit.policies.eagle3 import Eagle3
from specfit.testing.device_contract import DeviceContract
from tests.unit.backends.fake_cuda import CopyLog, FakeCuda, FakeEvent, FakeStream
from tests.unit.backends.models import decode, random_model, stock_text
from tests.unit.backends.test_experts import draw, make_experts
from tests.unit.backends.test_torch_backend import REQUEST

CPU = torch.device("cpu")


def fake_device(link: Any = None) -> CudaDevice:
    return CudaDevice(0, FakeCuda(), CPU)


class TestFakeCudaDevice(DeviceContract):
    make = staticmethod(fake_device)


def parameters(function: Any) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


@pytest.mark.parametrize(
    ("fake", "real"),
    [
        (FakeCuda.Event, torch.cuda.Event.__new__),
        (FakeCuda.Stream, torch.cuda.Stream.__new__),
        (FakeCuda.stream, torch.cuda.stream),
        (FakeCuda.current_stream, torch.cuda.current_stream),
        (FakeCuda.cudart, torch.cuda.cudart),
        (FakeCuda.synchronize, torch.cuda.synchronize),
        (FakeCuda.get_device_name, torch.cuda.get_device_name),
        (FakeCuda.mem_get_info, torch.cuda.mem_get_info),
        (FakeStream.wait_event, torch.cuda.Stream.wait_event),
        (FakeEvent.record, torch.cuda.Event.record),
        (FakeEvent.query, torch.cuda.Event.query),
        (FakeEvent.elapsed_time, torch.cuda.Event.elapsed_time),
    ],
    ids=lambda f: getattr(f, "__qualname__", ""),
)
def test_the_fake_takes_what_the_real_call_takes(fake: Any, real: Any) -> None:
    ours, theirs = parameters(fake), parameters(real)
    assert ours == theirs[: len(ours)]


def test_the_adapter_is_small_and_calls_nothing_that_the_fake_lacks() -> None:
    source = inspect.getsource(adapter)
    assert source.count("\n") <= 165
    called = {part.split("(")[0].split(".")[0] for part in source.split("self._cuda.")[1:]}
    assert called <= set(dir(FakeCuda))
    assert called <= set(dir(torch.cuda))


def test_calls_come_in_their_places() -> None:
    """Copies go behind the reader's event and before the arrival's, computing behind that."""
    cuda = FakeCuda()
    device = CudaDevice(0, cuda, CPU)
    reader = device.record()
    cuda.log.clear()
    with CopyLog(cuda):
        arrival = device.copy([(torch.ones(2), torch.zeros(2))] * 2, reader)
        device.wait(arrival)
    asynchronous = {"non_blocking": True}
    place = reader.event.number  # type: ignore[attr-defined]
    assert cuda.log == [
        ("wait", "copy", place),
        ("record", "copy", place + 1),
        ("copy", "copy", asynchronous),
        ("copy", "copy", asynchronous),
        ("record", "copy", place + 2),
        ("record", "compute", place + 3),
        ("wait", "compute", place + 2),
        ("record", "compute", place + 4),
    ]
    assert device.counters.busy_s == device.counters.stall_s == 0.0015
    assert device.counters.num_bytes == 16


def test_seconds_are_counted_when_the_gpu_has_come_so_far() -> None:
    device = fake_device()
    device.wait(device.copy([(torch.ones(2), torch.zeros(2))], None))
    end = device._timed[0][2]
    end.is_recorded = False
    assert device.counters.busy_s == 0
    end.is_recorded = True
    assert device.counters.busy_s > 0


def test_the_bank_is_pinned_layer_by_layer_and_freed_once() -> None:
    cuda = FakeCuda()
    device = CudaDevice(0, cuda, CPU)
    bank = device.allocate_host((3, 4, 1024), torch.float32)
    assert bank.shape == (3, 4, 1024)
    layers = [(bank[i].data_ptr(), 16384) for i in range(3)]
    assert [item for item in cuda.runtime.registered.items() if item in layers] == layers
    assert device.describe_link()["unpinned_bytes"] == 0
    device.close()
    device.close()
    assert cuda.runtime.registered == {}
    bank.fill_(1.0)  # still memory


def test_blocks_of_odd_size_are_pinned_in_one_piece() -> None:
    """Two pieces would share a page, which cannot be registered twice."""
    cuda = FakeCuda()
    bank = CudaDevice(0, cuda, CPU).allocate_host((3, 100), torch.float32)
    assert cuda.runtime.registered[bank.data_ptr()] == 1200


def test_memory_that_cannot_be_pinned_is_said_to_be_pageable() -> None:
    cuda = FakeCuda()
    device = CudaDevice(0, cuda, CPU)
    cuda.runtime.most_bytes = 2**20 + 40_000
    device.allocate_host((3, 4, 1024), torch.float32)
    said = device.describe_link()
    assert said["what"] == "copies from partly PAGEABLE host memory to the GPU"
    assert said["unpinned_bytes"] == 16384


def test_running_out_of_device_memory_names_the_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    device = fake_device()

    def refuse(*args: Any, **kwargs: Any) -> None:
        raise torch.OutOfMemoryError("no")

    monkeypatch.setattr(torch, "empty", refuse)
    with pytest.raises(BackendError, match=r"1\.00 of 2\.00 GiB free, and 4\.00 GiB more"):
        device.allocate((2**30,), torch.float32)


@pytest.fixture
def grouped(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(experts, "is_grouped", lambda rows: True)
    yield


@pytest.mark.parametrize("spec", ["none", "lru:5", "lru:100%"])
@pytest.mark.parametrize("num_tokens", [1, 3, 33])
def test_grouped_products_are_the_single_ones(
    spec: str, num_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    single, together = make_experts(spec), make_experts(spec)
    for key in range(3):
        inputs = draw(num_tokens, key)
        with torch.inference_mode():
            expected = single(*inputs)
            monkeypatch.setattr(experts, "is_grouped", lambda rows: True)
            found = together(*inputs)
            monkeypatch.undo()
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("cache", ["none", "lru:4", "lru:100%"])
def test_a_backend_over_the_adapter_writes_the_targets_text(cache: str, grouped: None) -> None:
    folder = random_model()[0]
    checkpoint = Checkpoint.open(folder)
    head = HeadCheckpoint.load(folder / "eagle3", checkpoint.config)
    with TorchBackend(checkpoint, head, fake_device(), cache, torch.float32, 512) as backend:
        result = decode(backend, Eagle3(depth=3, top_k=2, max_nodes=8), REQUEST)
        assert result.tokens == stock_text(REQUEST)
        assert backend._store.slot_bytes_are_current()
        assert backend.describe()["device"] == "cuda:0 (no GPU)"


def test_cuda_is_refused_where_there_is_none() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    with pytest.raises(InvalidInputError, match="is_available"):
        load("tiny", device="cuda")
