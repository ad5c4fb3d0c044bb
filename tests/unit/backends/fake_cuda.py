"""What stands in for `torch.cuda` where there is none: the same calls, done at once, written down.

Its streams do nothing by themselves, since torch on a CPU has computed when a call returns. What it
can show is that every call exists, with these arguments, and in which order the calls come.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class FakeEvent:
    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda = cuda
        self.number = len(cuda.events)
        self.is_recorded = False
        cuda.events.append(self)

    def record(self, stream: Any = None) -> None:
        self.is_recorded = True
        self.cuda.log.append(("record", stream.name, self.number))

    def query(self) -> bool:
        return self.is_recorded

    def synchronize(self) -> None:
        self.cuda.log.append(("synchronize", self.number))

    def elapsed_time(self, end_event: Any) -> float:
        assert self.is_recorded and end_event.is_recorded
        return 1.5


class FakeStream:
    def __init__(self, cuda: FakeCuda, name: str) -> None:
        self.cuda = cuda
        self.name = name

    def wait_event(self, event: Any) -> None:
        self.cuda.log.append(("wait", self.name, event.number))


class FakeRuntime:
    """The runtime's own calls, which return codes."""

    def __init__(self) -> None:
        self.registered: dict[int, int] = {}
        self.most_bytes = 2**60

    def cudaHostRegister(self, ptr: int, size: int, flags: int) -> int:
        if sum(self.registered.values()) + size > self.most_bytes:
            return 2
        self.registered[ptr] = size
        return 0

    def cudaHostUnregister(self, ptr: int) -> int:
        del self.registered[ptr]
        return 0


class FakeCuda:
    def __init__(self) -> None:
        self.log: list[tuple[Any, ...]] = []
        self.events: list[FakeEvent] = []
        self.runtime = FakeRuntime()
        self.computing = FakeStream(self, "compute")
        self._current = self.computing

    def Event(self, enable_timing: bool = False) -> FakeEvent:
        return FakeEvent(self)

    def Stream(self, device: Any = None) -> FakeStream:
        return FakeStream(self, "copy")

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        before, self._current = self._current, stream
        yield
        self._current = before

    def current_stream(self, device: Any = None) -> FakeStream:
        return self._current

    def cudart(self) -> FakeRuntime:
        return self.runtime

    def synchronize(self, device: Any = None) -> None:
        self.log.append(("synchronize",))

    def get_device_name(self, device: Any = None) -> str:
        return "no GPU"

    def mem_get_info(self, device: Any = None) -> tuple[int, int]:
        return 2**30, 2**31


class CopyLog(torch.overrides.TorchFunctionMode):
    """Writes down on which stream each copy between tensors is asked for."""

    def __init__(self, cuda: FakeCuda) -> None:
        super().__init__()
        self.cuda = cuda

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.copy_:
            self.cuda.log.append(("copy", self.cuda.current_stream().name, kwargs))
        return func(*args, **(kwargs or {}))
