"""A device that runs what is queued in any order that its events allow, and poisons what it frees.

A wait that is missing shows on a real device once in a thousand runs; here a test tries every
order, or many random ones, and a read that came too early or too late finds not-a-number.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from torch import Tensor

from specfit.backends.device import Copy, Device, Event, LinkCounters
from specfit.backends.file_bank import Source, deliver
from specfit.core.errors import BackendError

Choose = Callable[[int], int]
"""Which of so many queues goes on; only asked where there is a choice."""


class QueuedEvent(Event):
    """A point of a queue, and whether the queue has come to it."""

    def __init__(self) -> None:
        self.is_reached = False
        self.error: str | None = None

    def reach(self) -> None:
        """Let pass what waits for this point."""
        self.is_reached = True


@dataclass(frozen=True)
class Step:
    """One entry of a queue: what must have been reached before, and what to do."""

    after: QueuedEvent | None
    run: Callable[[], None]

    @property
    def is_ready(self) -> bool:
        """Whether the queue may go on with it."""
        return self.after is None or self.after.is_reached


class AdversarialDevice(Device):
    """Two queues, computing and copying, that advance as `choose` says.

    Computing that is queued by `compute` runs when `finish` is called. A backend computes at once
    instead; for it set `is_eager`, and whatever is waited for is run then, the rest by chance.

    Parameters
    ----------
    choose : callable
        Which queue goes on.
    is_eager : bool
        Whether computing is done when it is asked for, as by torch on a CPU.
    fail_at : int, optional
        Number of the batch of copies that fails, counted from 0.
    """

    def __init__(
        self, choose: Choose, *, is_eager: bool = False, fail_at: int | None = None
    ) -> None:
        self.name = "adversarial"
        self.torch_device = torch.device("cpu")
        self.link = None
        self.counters = LinkCounters()
        self._choose = choose
        self._is_eager = is_eager
        self._fail_at = fail_at
        self._num_batches = 0
        self._queues: tuple[deque[Step], deque[Step]] = (deque(), deque())  # computing, copying

    def allocate(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """See `Device.allocate`; poisoned."""
        return torch.full(tuple(shape), torch.nan, dtype=dtype)

    def allocate_host(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """See `Device.allocate_host`; poisoned."""
        return torch.full(tuple(shape), torch.nan, dtype=dtype)

    def copy(self, copies: Sequence[Copy], after: Event | None) -> Event:
        """See `Device.copy`. A copy is two steps; in between its destination is poisoned."""
        assert after is None or isinstance(after, QueuedEvent), "an event of this device"
        arrival = QueuedEvent()
        if self._num_batches == self._fail_at:
            arrival.error = "made to fail"
        self._num_batches += 1
        for source, destination in copies:
            self._push(1, after, partial(_poison, destination))
            self._push(1, None, partial(_write, destination, source, arrival))
            self.counters.num_copies += 1
            self.counters.num_bytes += source.nbytes
        self._push(1, after, arrival.reach)
        self._let_run()
        return arrival

    def wait(self, event: Event) -> None:
        """See `Device.wait`."""
        assert isinstance(event, QueuedEvent), "an event of this device"
        self._push(0, event, lambda: None)
        self._let_run()
        if event.error is not None:
            raise BackendError(f"a copy of expert weights failed: {event.error}.")

    def synchronize(self, event: Event) -> None:
        """See `Device.synchronize`. Runs what is queued, by choice, until the event is reached."""
        assert isinstance(event, QueuedEvent), "an event of this device"
        while not event.is_reached:
            self._step()

    def record(self) -> Event | None:
        """See `Device.record`."""
        event = QueuedEvent()
        self._push(0, None, event.reach)
        self._let_run()
        return event

    def compute(self, action: Callable[[], None]) -> None:
        """Queue an action of the compute queue, such as a read of slots."""
        self._push(0, None, action)

    def finish(self) -> None:
        """Run all that is queued.

        Raises
        ------
        BackendError
            Each queue waits for the other.
        """
        while any(self._queues):
            self._step()

    def describe_link(self) -> dict[str, object]:
        """See `Device.describe_link`."""
        return {"kind": "adversarial"}

    def close(self) -> None:
        """See `Device.close`."""
        for queue in self._queues:
            queue.clear()

    def _push(self, queue: int, after: QueuedEvent | None, run: Callable[[], None]) -> None:
        self._queues[queue].append(Step(after, run))

    def _let_run(self) -> None:
        """Where computing is eager, run all of it so far, and by chance some copies."""
        if self._is_eager:
            while self._queues[0] or (self._queues[1] and self._choose(2)):
                self._step()

    def _step(self) -> None:
        ready = [queue for queue in self._queues if queue and queue[0].is_ready]
        if not ready:
            raise BackendError("computing and copying wait for each other: nothing can go on.")
        chosen = ready[self._choose(len(ready)) if len(ready) > 1 else 0]
        chosen.popleft().run()


def random_orders(count: int, key: int = 0) -> Iterator[Choose]:
    """Yield `count` ways to choose at random, the same ones for the same key."""
    for number in range(count):
        rng = np.random.default_rng([key, number])
        yield partial(_draw, rng)


def every_order(limit: int = 100_000) -> Iterator[Choose]:
    """Yield one way to choose for every order there is; each must be used before the next.

    Parameters
    ----------
    limit : int
        Most orders; more of them is an error, since what is left out would look tried.

    Raises
    ------
    BackendError
        There are more orders than the limit.
    """
    path: list[list[int]] = []  # choice taken and number of options at each point
    for _ in range(limit):
        yield _FollowPath(path)
        while path and path[-1][0] == path[-1][1] - 1:
            path.pop()
        if not path:
            return
        path[-1][0] += 1
    raise BackendError(f"there are more than {limit} orders. Try a smaller case.")


def _draw(rng: np.random.Generator, options: int) -> int:
    return int(rng.integers(options))


class _FollowPath:
    """Repeats the choices of a path and extends it with first options; the path is shared."""

    def __init__(self, path: list[list[int]]) -> None:
        self._path = path
        self._place = 0

    def __call__(self, options: int) -> int:
        if self._place == len(self._path):
            self._path.append([0, options])
        choice, known = self._path[self._place]
        assert known == options, "the case must do the same under the same choices"
        self._place += 1
        return choice


def _poison(destination: Tensor) -> None:
    with torch.inference_mode():
        destination.fill_(torch.nan)


def _write(destination: Tensor, source: Source, arrival: QueuedEvent) -> None:
    """Deliver, unless the batch is to fail."""
    if destination.shape != source.shape:
        arrival.error = f"sizes {list(source.shape)} and {list(destination.shape)} differ"
    if arrival.error is None:
        with torch.inference_mode():
            deliver(source, destination)
