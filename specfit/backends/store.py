"""The expert store: all experts in host memory, some of them in the device's slots.

Decides nothing: the cache object of the core says which expert goes to which slot, this carries it
out and hands over slots whose bytes have arrived. It is all of the protocol between the two queues
of a device, in rules that hold on every device:

1. A copy into a slot is queued behind the last computing that read the layer's slots.
2. Computing on a copied expert is queued behind the copy's arrival; what was resident is handed
   over before, and is computed while the copies fly.
3. What was handed over stays in its slot until the next wave is asked for.
4. Copies made ahead obey the first two rules too. Those of a layer are queued before the copies
   that its pass asks for, since those may reuse their slots; those of later layers behind them, and
   never more than `LAYERS_AHEAD` layers early, so that what is asked for does not wait for all.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from specfit.backends.ahead import AheadQueue
from specfit.backends.device import Device, Event
from specfit.backends.file_bank import Bank, Source, in_memory
from specfit.core.cache import ExpertCache, LoadPlan
from specfit.core.errors import BackendError
from specfit.core.experts import ModelGeometry
from specfit.core.passes import PassCounts

LAYERS_AHEAD = 4
"""How many layers before their own copies made ahead are queued at most."""


class Blocks(Protocol):
    """Experts by layer: ``blocks[layer][expert]`` is where one comes from."""

    def __getitem__(self, layer: int) -> Sequence[Source]: ...


@dataclass(frozen=True, eq=False)
class Wave:
    """Experts of one layer that are in slots together.

    Parameters
    ----------
    experts, slots : int64[u]
        The experts, ascending, and where they are.
    """

    experts: NDArray[np.int64]
    slots: NDArray[np.int64]


class ExpertStore:
    """Host bank and slot pools of a model, with the cache that rules the slots.

    Parameters
    ----------
    bank : Tensor or FileBank [L, E, B]
        Every expert's block, in host memory or on disk.
    device : Device
        Where the slots are.
    cache : ExpertCache
        Allocated for this model.
    geometry : ModelGeometry
        Shape of the model.
    """

    def __init__(
        self, bank: Bank, device: Device, cache: ExpertCache, geometry: ModelGeometry
    ) -> None:
        self.bank = bank
        self.device = device
        self.cache = cache
        self.geometry = geometry
        self.pools = [
            device.allocate((cache.capacity, bank.shape[2]), bank.dtype)
            for _ in range(geometry.num_layers)
        ]
        self.counts = PassCounts.zeros(geometry.num_layers)
        self._last_read: list[Event | None] = [None] * geometry.num_layers
        self._ahead = AheadQueue(geometry.num_layers)

    def begin_pass(self) -> None:
        """Start counting anew."""
        self.counts = PassCounts.zeros(self.geometry.num_layers)

    def end_pass(self) -> None:
        """Tell the cache that the pass is over."""
        self.cache.end_pass()

    def reset(self) -> None:
        """Forget what is resident."""
        self.cache.reset()
        self._ahead = AheadQueue(self.geometry.num_layers)

    def bring_ahead(self, plans: Sequence[LoadPlan]) -> None:
        """Copy what the cache has made resident ahead of the coming pass, in layer order.

        The first layers' copies are queued now, the others' while the pass runs. After an error
        nothing is resident.

        Parameters
        ----------
        plans : sequence of LoadPlan
            From `ExpertCache.prefetch`, between two passes.

        Raises
        ------
        BackendError
            A copy failed.
        """
        try:
            self._ahead.plan(plans)
            self._send_ahead(LAYERS_AHEAD - 1)
        except BaseException:
            self.reset()
            raise

    def refill(self, blocks: Blocks) -> None:
        """Bring every resident expert into its slot anew, whatever the slots hold.

        For a cache that was filled by bookkeeping alone, as a recorded prompt does.

        Parameters
        ----------
        blocks : Blocks [L][E]
            The same experts as the bank's, from wherever is best.

        Raises
        ------
        BackendError
            A copy failed.
        """
        for layer, pool in enumerate(self.pools):
            slots = self.cache.slot_of(layer)
            sources, experts = blocks[layer], np.flatnonzero(slots >= 0).tolist()
            copies = [(sources[expert], pool[slots[expert]]) for expert in experts]
            if copies:
                self.device.wait(self.device.copy(copies, self._last_read[layer]))

    def waves(self, layer: int, experts: NDArray[np.int64]) -> Iterator[Wave]:
        """Yield the needed experts in slots, in as many waves as the slots require.

        Computing on a wave must have been queued before the next is asked for. After an error, or
        when the iterator is closed early, nothing is resident.

        Parameters
        ----------
        layer : int
            The MoE layer.
        experts : int64[u]
            Distinct experts that the pass needs there, ascending.

        Raises
        ------
        BackendError
            A copy failed.
        """
        try:
            self._send_ahead(layer)
            for plan in self.cache.waves(layer, experts):
                yield from self._bring(plan)
                self.counts.add(plan)
                self._last_read[layer] = self.device.record()
        except BaseException:
            self.reset()
            raise

    def slot_bytes_are_current(self) -> bool:
        """Return whether every resident expert's slot holds the host's bytes; slow, a check."""
        self._send_ahead(self.geometry.num_layers)
        for layer, pool in enumerate(self.pools):
            self._land(layer)
            slots = self.cache.slot_of(layer)
            for expert in np.flatnonzero(slots >= 0).tolist():
                if not pool[slots[expert]].equal(in_memory(self.bank[layer][expert])):
                    return False
        return True

    def _bring(self, plan: LoadPlan) -> Iterator[Wave]:
        """Yield what is there while the rest is on its way, then what was sent ahead, the rest."""
        arrival = self._copy(plan) if len(plan.loads) else None
        self._send_ahead(plan.layer + LAYERS_AHEAD)
        is_flying = self._ahead.is_flying(plan.layer, plan.hits)
        if not is_flying.all():
            yield Wave(plan.hits[~is_flying], plan.hit_slots[~is_flying])
        if is_flying.any():
            self._land(plan.layer)
            yield Wave(plan.hits[is_flying], plan.hit_slots[is_flying])
        if arrival is not None:
            self._wait(plan.layer, arrival)
            yield Wave(plan.loads, plan.load_slots)

    def _copy(self, plan: LoadPlan) -> Event:
        """Queue the copies of a plan behind the last reader of its layer's slots."""
        bank, pool = self.bank[plan.layer], self.pools[plan.layer]
        pairs = zip(plan.loads.tolist(), plan.load_slots.tolist(), strict=True)
        copies = [(bank[expert], pool[slot]) for expert, slot in pairs]
        return self.device.copy(copies, self._last_read[plan.layer])

    def _send_ahead(self, last_layer: int) -> None:
        """Queue what is planned ahead for the layers up to a given one."""
        for plan in self._ahead.take_planned(last_layer):
            self._land(plan.layer)  # what no pass has needed yet: there since long, or failed
            self._ahead.depart(plan, self._copy(plan))

    def _land(self, layer: int) -> None:
        """Let computing wait for all that was sent ahead to a layer."""
        for arrival in self._ahead.land(layer):
            self._wait(layer, arrival)

    def _wait(self, layer: int, arrival: Event) -> None:
        try:
            self.device.wait(arrival)
        except BackendError as error:
            raise BackendError(f"layer {layer}: {error}") from error
