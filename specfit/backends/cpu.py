"""The CPU as a device: computing is synchronous, copies run in a thread of their own.

With an emulated link a copy is not ready before the time at which it would have arrived over it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from queue import SimpleQueue
from typing import ClassVar

import torch
from torch import Tensor

from specfit.backends.device import Copy, Device, EmulatedLink, Event, LinkCounters
from specfit.backends.direct_file import aligned
from specfit.backends.file_bank import deliver
from specfit.core.errors import BackendError

SPIN_S = 2e-4
"""The last stretch of a wait is spent spinning, since a sleep may end this much too late."""


LOOK_S = 0.5
"""How long a wait lasts before it is seen whether the copy thread still runs."""


class CpuEvent(Event):
    """The arrival of some copies: their bytes are there, and their time has come.

    Parameters
    ----------
    due_s : float
        `time.perf_counter` value before which an emulated link would not have delivered.
    thread : threading.Thread
        Who copies.
    """

    def __init__(self, due_s: float, thread: threading.Thread) -> None:
        self.due_s = due_s
        self._thread = thread
        self.error: BaseException | None = None
        self._moved = threading.Event()

    def set_moved(self, error: BaseException | None) -> None:
        """Tell the waiting thread that the bytes are there, or why not."""
        self.error = error
        self._moved.set()

    def wait(self) -> None:
        """Block until the bytes are there and the time has come, or the copies cannot come."""
        while not self._moved.wait(LOOK_S):
            if not self._thread.is_alive() and not self._moved.is_set():
                self.set_moved(RuntimeError("the copy thread has ended"))
        if self.error is None:
            sleep_until(self.due_s)


class CpuDevice(Device):
    """Copies between two places in the memory of this machine.

    Parameters
    ----------
    link : EmulatedLink, optional
        The link to emulate; without one, copies take as long as they take.
    """

    maps_files: ClassVar[bool] = True

    def __init__(self, link: EmulatedLink | None = None) -> None:
        self.name = "cpu"
        self.torch_device = torch.device("cpu")
        self.link = link
        self.counters = LinkCounters()
        self._free_s = 0.0  # when the emulated link has delivered all that is queued
        self._queue: SimpleQueue[tuple[Sequence[Copy], CpuEvent] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None

    def allocate(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """See `Device.allocate`."""
        return torch.empty(tuple(shape), dtype=dtype)

    def allocate_host(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """See `Device.allocate_host`. On the grid of direct reads."""
        return aligned(shape, dtype)

    def copy(self, copies: Sequence[Copy], after: Event | None) -> Event:
        """See `Device.copy`; whatever was computed before is done, so `after` is reached."""
        thread = self._running_thread()
        event = CpuEvent(self._occupy_link(copies), thread)
        self._queue.put((copies, event))
        return event

    def wait(self, event: Event) -> None:
        """See `Device.wait`."""
        assert isinstance(event, CpuEvent), "an event of this device"
        started = time.perf_counter()
        event.wait()
        self.counters.stall_s += time.perf_counter() - started
        if event.error is not None:
            raise BackendError(
                f"a copy of expert weights failed: {event.error}. Start the request again."
            ) from event.error

    def synchronize(self, event: Event) -> None:
        """See `Device.synchronize`."""
        assert isinstance(event, CpuEvent), "an event of this device"
        event.wait()

    def record(self) -> Event | None:
        """See `Device.record`."""
        return None

    def describe_link(self) -> dict[str, object]:
        """See `Device.describe_link`."""
        if self.link is None:
            return {"kind": "measured", "what": "copies within host memory"}
        return {
            "kind": "emulated",
            "latency_s": self.link.latency_s,
            "bandwidth_bytes_per_s": self.link.bandwidth_bytes_per_s,
        }

    def close(self) -> None:
        """See `Device.close`."""
        if self._thread is not None:
            self._queue.put(None)
            self._thread.join()
            self._thread = None

    def _occupy_link(self, copies: Sequence[Copy]) -> float:
        sizes = [source.nbytes for source, _ in copies]
        self.counters.num_copies += len(sizes)
        self.counters.num_bytes += sum(sizes)
        if self.link is None:
            return 0.0
        busy_s = sum(self.link.copy_s(size) for size in sizes)
        self.counters.busy_s += busy_s
        self._free_s = max(time.perf_counter(), self._free_s) + busy_s
        return self._free_s

    def _running_thread(self) -> threading.Thread:
        if self._thread is None or not self._thread.is_alive():
            self._queue = SimpleQueue()  # what a thread that ended left behind will not be copied
            self._thread = threading.Thread(target=self._run, name="specfit-copy", daemon=True)
            self._thread.start()
        return self._thread

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            copies, event = job
            started = time.perf_counter()
            event.set_moved(self._move(copies))
            if self.link is None:
                self.counters.busy_s += time.perf_counter() - started

    def _move(self, copies: Sequence[Copy]) -> BaseException | None:
        """Do the copies of a batch; return what went wrong."""
        return _move(copies)


def sleep_until(due_s: float) -> None:
    """Return at the given `time.perf_counter` value, to within a few microseconds."""
    remaining = due_s - time.perf_counter()
    if remaining > SPIN_S:
        time.sleep(remaining - SPIN_S)
    while time.perf_counter() < due_s:
        pass


@torch.inference_mode()  # slots that were made in this mode may be written in no other
def _move(copies: Sequence[Copy]) -> BaseException | None:
    try:
        for source, destination in copies:
            deliver(source, destination)
    except Exception as error:  # handed to the thread that waits
        return error
    return None
