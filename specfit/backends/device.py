"""The device interface: memory, one copy queue, and events between copying and computing.

Everything that offloading needs of a device, and no more, so that a CPU, a CUDA device and a device
made to misbehave in tests can stand in for one another. Which expert goes where is not known here.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from specfit.backends.file_bank import Source
from specfit.core.errors import InvalidInputError

Copy = tuple[Source, Tensor]
"""Source in host memory or on disk and destination in device memory, equal in shape and dtype."""


@dataclass(frozen=True)
class EmulatedLink:
    """A link of given speed, where the real one is too fast or absent; called emulated in results.

    Parameters
    ----------
    latency_s : float
        Seconds that each copy takes whatever its size.
    bandwidth_bytes_per_s : float
        Bytes a second.
    """

    latency_s: float
    bandwidth_bytes_per_s: float

    def __post_init__(self) -> None:
        if not 0 <= self.latency_s < float("inf"):
            raise InvalidInputError(f"latency_s must be 0 or more; got {self.latency_s}.")
        if not self.bandwidth_bytes_per_s > 0:
            raise InvalidInputError(
                f"bandwidth_bytes_per_s must be above 0; got {self.bandwidth_bytes_per_s}."
            )

    def copy_s(self, num_bytes: int) -> float:
        """Return the seconds that one copy of so many bytes occupies the link."""
        return self.latency_s + num_bytes / self.bandwidth_bytes_per_s


@dataclass
class LinkCounters:
    """What has gone over the link so far.

    Parameters
    ----------
    num_copies, num_bytes : int
        Copies done or queued, and their bytes.
    busy_s : float
        Seconds that the link was or will be occupied by them.
    stall_s : float
        Seconds that computing waited for copies.
    """

    num_copies: int = 0
    num_bytes: int = 0
    busy_s: float = 0.0
    stall_s: float = 0.0


class Event:
    """A point in a queue of the device; reached or not yet."""


class Device(ABC):
    """Where the model computes: memory, a compute queue and one copy queue beside it.

    Attributes
    ----------
    name : str
        For results: ``"cpu"``.
    torch_device : torch.device
        Where tensors that take part in computing live.
    link : EmulatedLink, optional
        The link that copies are slowed down to, if any.
    counters : LinkCounters
        What has gone over the link so far.
    """

    name: str
    torch_device: torch.device
    link: EmulatedLink | None
    counters: LinkCounters
    maps_files: ClassVar[bool] = False
    """Whether copies from a mapped file are as good as from host memory."""
    reads_files: ClassVar[bool] = False
    """Whether experts stay in a file and are read from it into the slots."""

    @abstractmethod
    def allocate(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return uninitialised device memory."""

    @abstractmethod
    def allocate_host(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """Return uninitialised host memory from which copies are fast."""

    @abstractmethod
    def copy(self, copies: Sequence[Copy], after: Event | None) -> Event:
        """Queue copies behind those queued before, and return the event of their arrival.

        Parameters
        ----------
        copies : sequence of (source, destination)
            Neither side may be touched before the event is reached.
        after : Event or None
            Point in the compute queue that must be reached first: the last reader of the
            destinations.
        """

    @abstractmethod
    def wait(self, event: Event) -> None:
        """Make computing wait until the event is reached; the time is counted as stall.

        Raises
        ------
        BackendError
            A copy failed.
        """

    @abstractmethod
    def synchronize(self, event: Event) -> None:
        """Block the calling thread until the event is reached, or its copies have failed."""

    @contextmanager
    def stalling(self) -> Iterator[None]:
        """Count as stall what computing has to wait while the calling thread is in here."""
        started = time.perf_counter()
        try:
            yield
        finally:
            self.counters.stall_s += time.perf_counter() - started

    @abstractmethod
    def record(self) -> Event | None:
        """Return the event after everything that has been computed or queued for computing so far.

        None where computing is synchronous.
        """

    def fetch(self, tensor: Tensor) -> Tensor:
        """Return the values of a tensor in host memory, once all before it has been computed."""
        return tensor

    @abstractmethod
    def describe_link(self) -> dict[str, object]:
        """Return what a result must say about the link.

        ``kind`` is ``"measured"`` or ``"emulated"``; where it is measured, ``what`` says in words
        what the copies went over.
        """

    def close(self) -> None:  # noqa: B027 - optional hook
        """Stop the copy queue; harmless when called twice."""
