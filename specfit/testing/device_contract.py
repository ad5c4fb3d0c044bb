"""What every device keeps, so that the expert store may rely on it: bytes, order, time, counts."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from specfit.core.errors import BackendError
from specfit.testing.contract import Contract, check, require

if TYPE_CHECKING:
    from specfit.backends.device import Copy, Device, EmulatedLink

LATENCY_S, BANDWIDTH = 2e-3, 4e6
NUM_BYTES = 8000
COPY_S = LATENCY_S + NUM_BYTES / BANDWIDTH
SLACK_S = 0.05
"""How late a busy machine may be."""
NUM_TRIES = 5
"""A busy machine hides that copies were early; it does not do so every time."""


class DeviceContract(Contract):
    """L1 to L9. ``make(link)`` returns a device; one that cannot emulate a link ignores it.

    Where there is no link to emulate, the times are only held against zero.
    """

    @staticmethod
    def make(link: EmulatedLink | None = None) -> Any:
        """Return a fresh device."""
        raise NotImplementedError("set make = staticmethod(lambda link=None: ...)")

    def test_l1_bytes_arrive(self) -> None:
        """After a wait the destination holds the source's bytes, whatever it held before."""
        with _Closing(self.make()) as device:
            copies = _copies(device, 7)
            device.wait(device.copy(copies, None))
            for number, (_, destination) in enumerate(copies):
                found = device.fetch(destination).tolist()
                require(set(found) == {float(number)}, "L1", f"copy {number} holds {found[:3]}")

    def test_l2_not_before_their_time(self) -> None:
        """Copies arrive no sooner than latency and bytes over bandwidth after submission."""
        with _Closing(self.make(_link())) as device:
            least = 3 * COPY_S if device.link else 0.0
            for _ in range(NUM_TRIES):
                copies = _copies(device, 3)
                started = time.perf_counter()
                device.wait(device.copy(copies, None))
                took = time.perf_counter() - started
                require(took >= least, "L2", f"3 copies took {took:.4f} s, {least:.4f} at least")

    def test_l3_in_order(self) -> None:
        """What was submitted before a copy that has arrived has arrived too."""
        with _Closing(self.make(_link())) as device:
            first, second = _copies(device, 2), _copies(device, 1)
            device.copy(first, None)
            device.wait(device.copy(second, None))
            for number, (_, destination) in enumerate(first):
                found = device.fetch(destination).tolist()
                require(set(found) == {float(number)}, "L3", f"copy {number} holds {found[:3]}")

    def test_l4_counts(self) -> None:
        """Copies, bytes and, on an emulated link, busy seconds are the sums of what was asked."""
        with _Closing(self.make(_link())) as device:
            device.wait(device.copy(_copies(device, 5), None))
            device.fetch(device.allocate((1,), _float32()))
            counters = device.counters
            require(counters.num_copies == 5, "L4", f"{counters.num_copies} copies, not 5")
            right = counters.num_bytes == 5 * NUM_BYTES
            require(right, "L4", f"{counters.num_bytes} bytes, not {5 * NUM_BYTES}")
            if device.link:
                exact = abs(counters.busy_s - 5 * COPY_S) <= 0.05 * 5 * COPY_S
                require(exact, "L4", f"busy for {counters.busy_s} s, not {5 * COPY_S}")

    def test_l5_never_idle_while_something_waits(self) -> None:
        """Time counts from submission: who computes meanwhile waits only for the rest."""
        with _Closing(self.make(_link())) as device:
            first = device.copy(_copies(device, 4), None)
            second = device.copy(_copies(device, 4), None)
            time.sleep(8 * COPY_S)
            started = time.perf_counter()
            device.wait(first)
            device.wait(second)
            took = time.perf_counter() - started
            require(took < SLACK_S, "L5", f"waited {took:.4f} s for copies that had arrived")

    def test_l6_a_failure_reaches_the_waiter(self) -> None:
        """A copy that cannot be done is a `BackendError`, and the next one works."""
        with _Closing(self.make()) as device:
            source, _ = _copies(device, 1)[0]
            try:
                device.wait(device.copy([(source, device.allocate((3,), _float32()))], None))
            except BackendError:
                pass
            else:
                require(False, "L6", "a copy between unequal sizes raised nothing")
            copies = _copies(device, 2)
            device.wait(device.copy(copies, None))
            found = device.fetch(copies[1][1]).tolist()
            require(set(found) == {1.0}, "L6", f"the next copy holds {found[:3]}")

    def test_l7_a_slot_is_free_when_its_reader_is_done(self) -> None:
        """A copy behind a recorded point overwrites nothing that was to be read before it."""
        with _Closing(self.make()) as device:
            source, slot = _copies(device, 1)[0]
            device.wait(device.copy([(source, slot)], None))
            read = slot + 1
            other = device.allocate_host((NUM_BYTES // 4,), _float32())
            other.fill_(9.0)
            device.wait(device.copy([(other, slot)], device.record()))
            found = device.fetch(read).tolist()
            require(set(found) == {1.0}, "L7", f"read {found[0]} where 1.0 was to be read")
            found = device.fetch(slot).tolist()
            require(set(found) == {9.0}, "L7", f"the slot holds {found[0]}, not the new bytes")

    def test_l8_closing_is_harmless_and_the_link_is_named(self) -> None:
        """Closing twice does nothing more; a result can say what kind of link there was."""
        device: Device = self.make()
        said = device.describe_link()
        kind, what = said.get("kind"), said.get("what")
        require(isinstance(kind, str) and kind, "L8", f"describe_link names the kind {kind!r}")
        require(what or kind != "measured", "L8", "a measured link must be named in `what`")
        device.wait(device.copy(_copies(device, 1), None))
        device.close()
        device.close()

    def test_l9_a_source_is_free_when_its_copies_have_arrived(self) -> None:
        """After `synchronize` the sources of copies may be overwritten."""
        from specfit.backends.file_bank import in_memory

        with _Closing(self.make(_link())) as device:
            copies = _copies(device, 3)
            arrival = device.copy(copies, None)
            device.synchronize(arrival)
            for source, _ in copies:
                in_memory(source).fill_(-2.0)
            device.wait(arrival)
            for number, (_, destination) in enumerate(copies):
                found = device.fetch(destination).tolist()
                require(set(found) == {float(number)}, "L9", f"copy {number} holds {found[:3]}")


def check_device(make: Callable[..., Device]) -> list[str]:
    """Check a device against its contract; ``make(link)`` as in `DeviceContract`."""
    return check(DeviceContract, make)


class _Closing:
    def __init__(self, device: Device) -> None:
        self._device = device

    def __enter__(self) -> Device:
        return self._device

    def __exit__(self, *error: object) -> None:
        self._device.close()


def _float32() -> Any:
    import torch

    return torch.float32


def _link() -> EmulatedLink:
    from specfit.backends.device import EmulatedLink

    return EmulatedLink(LATENCY_S, BANDWIDTH)


def _copies(device: Device, count: int) -> list[Copy]:
    """Return copies of which each fills its destination, which holds -1 before, with its number."""
    copies = []
    for number in range(count):
        source = device.allocate_host((NUM_BYTES // 4,), _float32())
        source.fill_(float(number))
        destination = device.allocate((NUM_BYTES // 4,), _float32())
        destination.fill_(-1.0)
        copies.append((source, destination))
    return copies
