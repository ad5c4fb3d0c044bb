"""A CUDA device, tested against a stand-in for ``torch.cuda`` only: no GPU has run it yet.

Each method is the stream call that `Device` describes; the expert store says who waits for whom.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from specfit.backends.device import Copy, Device, Event, LinkCounters
from specfit.backends.file_bank import in_memory
from specfit.core.errors import BackendError

STAGING_BYTES = 2**20


class CudaEvent(Event):
    """An event recorded on one of the two streams."""

    def __init__(self, event: torch.cuda.Event) -> None:
        self.event = event


class CudaDevice(Device):
    """One GPU behind its link.

    Parameters
    ----------
    index : int
        Number of the GPU.
    cuda : module
        ``torch.cuda``, or what stands in for it in tests.
    torch_device : torch.device, optional
        Where tensors live; by default the GPU.
    """

    def __init__(
        self, index: int = 0, cuda: Any = torch.cuda, torch_device: torch.device | None = None
    ) -> None:
        self.name = f"cuda:{index} ({cuda.get_device_name(index)})"
        self.torch_device = torch_device or torch.device("cuda", index)
        self.link = None
        self.num_unpinned_bytes = 0
        self._cuda = cuda
        self._copies = cuda.Stream(index)
        self._counters = LinkCounters()
        self._timed: list[tuple[str, torch.cuda.Event, torch.cuda.Event]] = []
        self._registered: list[tuple[int, mmap.mmap]] = []
        self._staging = self.allocate_host((STAGING_BYTES,), torch.uint8)

    @property
    def counters(self) -> LinkCounters:
        """What has gone over the link; seconds as far as the GPU has come."""
        while self._timed and self._timed[0][2].query():
            name, start, end = self._timed.pop(0)
            seconds = start.elapsed_time(end) / 1000
            setattr(self._counters, name, getattr(self._counters, name) + seconds)
        return self._counters

    def allocate(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """See `Device.allocate`."""
        try:
            return torch.empty(tuple(shape), dtype=dtype, device=self.torch_device)
        except torch.OutOfMemoryError as error:
            free, total = self._cuda.mem_get_info()
            needed = torch.Size(shape).numel() * dtype.itemsize
            raise BackendError(
                f"{self.name} has {free / 2**30:.2f} of {total / 2**30:.2f} GiB free, and "
                f"{needed / 2**30:.2f} GiB more are needed. Use a smaller --cache; "
                f"`specfit memory` says what fits."
            ) from error

    def allocate_host(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """See `Device.allocate_host`. Pinned, layer by layer; what cannot be stays pageable."""
        num_bytes = torch.Size(shape).numel() * dtype.itemsize
        memory = mmap.mmap(-1, max(1, num_bytes))  # page-aligned, and no more than is asked for
        tensor = torch.frombuffer(memory, dtype=dtype).view(tuple(shape))
        layer_bytes = num_bytes // shape[0]
        part = num_bytes if layer_bytes % mmap.PAGESIZE else layer_bytes
        for start in range(tensor.data_ptr(), tensor.data_ptr() + num_bytes, part):
            code = int(self._cuda.cudart().cudaHostRegister(start, part, 0))
            if code == 0:
                self._registered.append((start, memory))
            else:
                self.num_unpinned_bytes += part
        return tensor

    def copy(self, copies: Sequence[Copy], after: Event | None) -> Event:
        """See `Device.copy`."""
        start, end = self._event(), self._event()
        with self._cuda.stream(self._copies):
            if after is not None:
                self._copies.wait_event(after.event)
            start.record(self._copies)
            try:
                for source, destination in copies:
                    destination.copy_(in_memory(source), non_blocking=True)
            except RuntimeError as error:
                raise BackendError(f"a copy of expert weights failed: {error}") from error
            end.record(self._copies)
        self._counters.num_copies += len(copies)
        self._counters.num_bytes += sum(source.nbytes for source, _ in copies)
        self._timed.append(("busy_s", start, end))
        return CudaEvent(end)

    def wait(self, event: Event) -> None:
        """See `Device.wait`. The host goes on; the compute stream waits."""
        with self.stalling():
            self._cuda.current_stream().wait_event(event.event)

    def synchronize(self, event: Event) -> None:
        """See `Device.synchronize`."""
        event.event.synchronize()

    @contextmanager
    def stalling(self) -> Iterator[None]:
        """See `Device.stalling`. As long as the compute stream has nothing left to do."""
        computing = self._cuda.current_stream()
        start, end = self._event(), self._event()
        start.record(computing)
        try:
            yield
        finally:
            end.record(computing)
            self._timed.append(("stall_s", start, end))

    def record(self) -> Event:
        """See `Device.record`."""
        event = self._event()
        event.record(self._cuda.current_stream())
        return CudaEvent(event)

    def fetch(self, tensor: Tensor) -> Tensor:
        """See `Device.fetch`. Polls, since a sleeping host is woken late."""
        if tensor.nbytes > STAGING_BYTES:
            return tensor.cpu()
        host = self._staging[: tensor.nbytes].view(tensor.dtype).view(tensor.shape)
        host.copy_(tensor, non_blocking=True)
        event = self.record().event
        while not event.query():
            pass
        return host.clone()

    def describe_link(self) -> dict[str, object]:
        """See `Device.describe_link`."""
        memory = "pinned" if self.num_unpinned_bytes == 0 else "partly PAGEABLE"
        what = f"copies from {memory} host memory to the GPU"
        return {"kind": "measured", "what": what, "unpinned_bytes": self.num_unpinned_bytes}

    def close(self) -> None:
        """See `Device.close`. Host memory that was handed out stays, pinned no longer."""
        self._cuda.synchronize()
        while self._registered:
            self._cuda.cudart().cudaHostUnregister(self._registered.pop()[0])

    def _event(self) -> torch.cuda.Event:
        return self._cuda.Event(enable_timing=True)
