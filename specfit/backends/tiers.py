"""Three tiers: experts on a disk, some of them in host memory, some of those or others in slots.

Which experts are in host memory is decided by an expert cache of its own, which hears of what is
copied to the device only; the simulator drives the same one in the same way. What the device misses
comes from host memory if it is there, and is read into it first otherwise. Beside the rules of
`specfit.backends.store` two more hold:

1. A block of host memory is read into when every copy from it has arrived.
2. A copy from a block is queued when its read is done, and before copies into the same slots that
   were asked for later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor

import numpy as np
from torch import Tensor

from specfit.backends.device import Device, Event
from specfit.backends.file_bank import Bank, FileBank, in_memory
from specfit.backends.packed import check_room
from specfit.backends.ssd import NUM_THREADS, PART_BYTES
from specfit.backends.store import ExpertStore, Wave
from specfit.core.cache import ExpertCache, LoadPlan, make_cache
from specfit.core.errors import BackendError, InvalidInputError
from specfit.core.experts import ModelGeometry


class HostBank:
    """Blocks of host memory that experts of a file are read into.

    Parameters
    ----------
    bank : FileBank [L, E, B]
        The file.
    device : Device
        Where experts go from here; it says what host memory must be like.
    cache : ExpertCache
        Allocated for this model; says which experts are here, and in which block.
    num_threads : int
        Reads that are under way at once.

    Raises
    ------
    CheckpointError
        There is no room.
    """

    def __init__(
        self, bank: FileBank, device: Device, cache: ExpertCache, num_threads: int = NUM_THREADS
    ) -> None:
        shape = (len(bank), cache.capacity, bank.shape[2])
        check_room(int(np.prod(shape)) * bank.dtype.itemsize)
        self.bank = bank
        self.device = device
        self.cache = cache
        self.memory = device.allocate_host(shape, bank.dtype)
        self._pool: Executor = ThreadPoolExecutor(num_threads, "specfit-read")
        self._reads: list[Future[None]] = []
        self._last_copy: dict[tuple[int, int], Event] = {}

    @property
    def block_bytes(self) -> int:
        """Bytes of an expert."""
        return self.bank.shape[2] * self.bank.dtype.itemsize

    def order(self, plan: LoadPlan) -> deque[LoadPlan]:
        """Return the waves in which the loads of a device's plan get blocks here, in order.

        A wave's hits are here already; its loads are to be read before they are copied on.
        """
        return deque(self.cache.waves(plan.layer, plan.loads))

    def read(self, layer: int, expert: int, block: int) -> list[Future[None]]:
        """Begin to read an expert into a block, once nothing is copied from there any more."""
        self._wait_for_copies(layer, block)
        source = self.bank[layer][expert]
        parts = source.parts(self.memory[layer, block], PART_BYTES)
        reads = [self._pool.submit(source.file.read, offset, part) for offset, part in parts]
        self._reads = [read for read in self._reads if not read.done()] + reads
        return reads

    def copy(self, layer: int, copies: Sequence[tuple[int, Tensor]], after: Event | None) -> Event:
        """Queue copies from blocks to destinations as `Device.copy` does."""
        pairs = [(self.memory[layer, block], destination) for block, destination in copies]
        arrival = self.device.copy(pairs, after)
        for block, _ in copies:
            self._last_copy[layer, block] = arrival
        return arrival

    def reset(self) -> None:
        """Forget what is here, when no read is under way any more."""
        self._settle()
        self.cache.reset()

    def holds_its_bytes(self) -> bool:
        """Return whether every expert that is here has the file's bytes; slow, a check."""
        self._settle()
        for layer, blocks in enumerate(self.memory):
            where = self.cache.slot_of(layer)
            for expert in np.flatnonzero(where >= 0).tolist():
                if not blocks[where[expert]].equal(in_memory(self.bank[layer][expert])):
                    return False
        return True

    def describe(self) -> dict[str, object]:
        """Return what a result must say of the disk behind, and of what is read from it."""
        return {"io": self.bank.file.io, "host_bytes": self.memory.nbytes}

    def close(self) -> None:
        """End the threads; harmless when called twice."""
        self._pool.shutdown()

    def _settle(self) -> None:
        for read in self._reads:
            read.exception()
        self._reads = []

    def _wait_for_copies(self, layer: int, block: int) -> None:
        arrival = self._last_copy.pop((layer, block), None)
        if arrival is not None:
            self.device.synchronize(arrival)


def host_cache(device: Device, spec: str, geometry: ModelGeometry) -> ExpertCache:
    """Return the cache of a host bank before a device.

    Raises
    ------
    InvalidInputError, UnknownPluginError, CapacityError
        The device's own slots are filled from disk, or the spec cannot be used live.
    """
    if device.reads_files:
        raise InvalidInputError(
            f"a host tier lies between a device and a disk; '{device.name}' reads its slots from "
            f"the disk itself. Use device='cuda' or 'cpu', or leave the host tier out."
        )
    return make_cache(spec, geometry, live=True)


def close_tiers(device: Device, host: HostBank | None) -> None:
    """End what moves experts, when nothing is under way any more; harmless when done twice.

    First the reads into host memory, then the copies from there: so whoever writes to a block, or
    copies from it, has ended when its memory may be given back.
    """
    try:
        if host is not None:
            host.close()
    finally:
        device.close()


def make_store(
    bank: Bank, device: Device, cache: ExpertCache, host: HostBank | None
) -> ExpertStore:
    """Return the store of a bank: one over three tiers where there is a host bank before it."""
    if host is not None:
        return TieredStore(host, cache)
    return ExpertStore(bank, device, cache, cache.geometry)


class Shipment(Event):
    """The arrival of a plan's experts, of which some must be read before they can be copied.

    Parameters
    ----------
    host : HostBank
        Where they come from.
    plan : LoadPlan
        Of the device's cache.
    waves : deque of LoadPlan
        Of the host's cache, for the plan's loads.
    pool : Tensor [S, B]
        The layer's slots.
    after : Event or None
        The last reader of the slots.
    """

    def __init__(
        self,
        host: HostBank,
        plan: LoadPlan,
        waves: deque[LoadPlan],
        pool: Tensor,
        after: Event | None,
    ) -> None:
        self._host = host
        self._layer = plan.layer
        self._waves = waves
        self._pool = pool
        self._slots = dict(zip(plan.loads.tolist(), plan.load_slots.tolist(), strict=True))
        self._after = after
        self._arrivals: list[Event] = []
        self._begin(waves.popleft())

    def queue(self) -> list[Event]:
        """Return the arrivals of all experts, when their copies are queued: the reads are done.

        Raises
        ------
        BackendError
            A read failed.
        """
        while self._reading:
            expert, block, reads = self._reading.popleft()
            self._check(expert, reads)
            self._copy([(expert, block)])
            if not self._reading and self._waves:
                self._begin(self._waves.popleft())
        return self._arrivals

    def _begin(self, wave: LoadPlan) -> None:
        """Copy what is in host memory, and begin to read the rest."""
        here = list(zip(wave.hits.tolist(), wave.hit_slots.tolist(), strict=True))
        if here:
            self._copy(here)
        reading = zip(wave.loads.tolist(), wave.load_slots.tolist(), strict=True)
        self._reading = deque((e, b, self._host.read(self._layer, e, b)) for e, b in reading)

    def _copy(self, found: Sequence[tuple[int, int]]) -> None:
        copies = [(block, self._pool[self._slots[expert]]) for expert, block in found]
        self._arrivals.append(self._host.copy(self._layer, copies, self._after))

    def _check(self, expert: int, reads: Sequence[Future[None]]) -> None:
        errors = [error for read in reads if (error := read.exception()) is not None]
        if errors:
            raise BackendError(
                f"layer {self._layer}, expert {expert}: {self._host.bank.file.path} cannot be "
                f"read: {errors[0]!r}. Start the request again."
            ) from errors[0]


class TieredStore(ExpertStore):
    """An expert store whose experts come by way of a host bank.

    Parameters
    ----------
    host : HostBank
        Where they come from.
    cache : ExpertCache
        Of the device's slots.
    """

    def __init__(self, host: HostBank, cache: ExpertCache) -> None:
        self.host = host
        self._ordered: list[deque[deque[LoadPlan]]] = [deque() for _ in range(len(host.bank))]
        self._reads_ahead = np.zeros(len(host.bank), np.int64)
        super().__init__(host.bank, host.device, cache, cache.geometry)

    def begin_pass(self) -> None:
        """See `ExpertStore.begin_pass`. What was read ahead counts to the pass that comes."""
        super().begin_pass()
        self.counts.num_reads[:] = self._reads_ahead
        self._reads_ahead[:] = 0

    def end_pass(self) -> None:
        """See `ExpertStore.end_pass`."""
        super().end_pass()
        self.host.cache.end_pass()

    def reset(self) -> None:
        """See `ExpertStore.reset`. Nothing is in host memory either."""
        super().reset()
        self.host.reset()
        self._ordered = [deque() for _ in self._ordered]
        self._reads_ahead[:] = 0

    def bring_ahead(self, plans: Sequence[LoadPlan]) -> None:
        """See `ExpertStore.bring_ahead`. The host's cache hears of it at once."""
        for plan in plans:
            waves = self.host.order(plan)
            self._ordered[plan.layer].append(waves)
            self._reads_ahead[plan.layer] += sum(len(wave.loads) for wave in waves)
        super().bring_ahead(plans)

    def slot_bytes_are_current(self) -> bool:
        """See `ExpertStore.slot_bytes_are_current`. The same of host memory."""
        return super().slot_bytes_are_current() and self.host.holds_its_bytes()

    def _bring(self, plan: LoadPlan) -> Iterator[Wave]:
        """See `ExpertStore`. Copies sent ahead are queued first: their slots may be given away."""
        if len(plan.loads):
            for arrival in self._ahead.arrivals(plan.layer):
                self._queued(arrival)
        yield from super()._bring(plan)

    def _copy(self, plan: LoadPlan) -> Event:
        """Return the shipment of a plan, which was ordered already if it was sent ahead."""
        if self._ordered[plan.layer]:
            waves = self._ordered[plan.layer].popleft()
        else:
            waves = self.host.order(plan)
            self.counts.num_reads[plan.layer] += sum(len(wave.loads) for wave in waves)
        pool, last_read = self.pools[plan.layer], self._last_read[plan.layer]
        with self.device.stalling():
            return Shipment(self.host, plan, waves, pool, last_read)

    def _wait(self, layer: int, arrival: Event) -> None:
        for queued in self._queued(arrival):
            super()._wait(layer, queued)

    def _queued(self, arrival: Event) -> list[Event]:
        assert isinstance(arrival, Shipment), "all copies of this store are shipments"
        with self.device.stalling():
            return arrival.queue()
