"""A device made to misbehave: whatever is read too early is wrong, and copies may fail."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from specfit.backends.device import Copy, Device, Event, LinkCounters
from specfit.core.errors import BackendError


class LateEvent(Event):
    def __init__(self, copies: Sequence[Copy], number: int) -> None:
        self.copies = copies
        self.number = number


class LateDevice(Device):
    """Delivers at the last moment, and poisons the destinations until then.

    Parameters
    ----------
    fail_at : int, optional
        Number of the batch of copies that fails, counted from 0.
    """

    def __init__(self, fail_at: int | None = None) -> None:
        self.name = "late"
        self.torch_device = torch.device("cpu")
        self.link = None
        self.fail_at = fail_at
        self.counters = LinkCounters()
        self.num_batches = 0

    def allocate(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.full(tuple(shape), torch.nan, dtype=dtype)

    def allocate_host(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.full(tuple(shape), torch.nan, dtype=dtype)

    def copy(self, copies: Sequence[Copy], after: Event | None) -> Event:
        for source, destination in copies:
            assert source.shape == destination.shape
            destination.fill_(torch.nan)
            self.counters.num_bytes += source.nbytes
        self.counters.num_copies += len(copies)
        self.num_batches += 1
        return LateEvent(copies, self.num_batches - 1)

    def wait(self, event: Event) -> None:
        assert isinstance(event, LateEvent)
        if event.number == self.fail_at:
            raise BackendError("a copy of expert weights failed: made to fail.")
        for source, destination in event.copies:
            destination.copy_(source)

    def record(self) -> Event | None:
        return None

    def describe_link(self) -> dict[str, object]:
        return {"kind": "adversarial"}
