"""A global pool: one least-recently-used order over the slots of all layers. Simulator only.

Layers that need more slots take them from layers that need fewer. Live slots belong to a layer, so
this rule cannot be decoded with; it shows what the split by layers costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from specfit.core.cache._kernels import take_smallest
from specfit.core.cache.base import ExpertCache, IdArray, LoadPlan, caches
from specfit.core.experts import ModelGeometry


@caches.register("pool")
@dataclass(eq=False)
class Pool(ExpertCache):
    """Evict the least recently used experts of any layer; of equally old ones the lowest first.

    The size is that of a cache with equal slots in each layer: ``pool:25%`` holds 25 % of all
    experts. `capacity` is the whole pool's. A load plan's evictions are ``layer * E + expert``.
    """

    simulator_only: ClassVar[bool] = True

    def allocate(self, geometry: ModelGeometry, capacity: int) -> None:
        """See `ExpertCache.allocate`; `capacity` is a layer's share of the pool."""
        super().allocate(geometry, capacity)
        self.capacity *= geometry.num_layers
        self.reset()

    def reset(self) -> None:
        """See `ExpertCache.reset`."""
        super().reset()
        self._owners = np.full(self.capacity, -1, np.int64)  # layer * E + expert of each slot

    def choose_victims(self, layer: int, candidates: IdArray, count: int) -> IdArray:
        """See `ExpertCache.choose_victims`; candidates are ``layer * E + expert`` here."""
        victims, last_used = np.empty(count, np.int64), self._last_used.reshape(-1)
        take_smallest(last_used, last_used, candidates, victims)
        return victims

    def _bring_in(self, layer: int, experts: IdArray) -> LoadPlan:
        slots = self._slots[layer]
        hits, loads = experts[slots[experts] >= 0], experts[slots[experts] < 0]
        hit_slots, victims = slots[hits], loads[:0]
        if len(loads):
            victims = self._make_room(layer, experts, len(loads))
            free_slots = np.flatnonzero(self._owners < 0)[: len(loads)]
            self._owners[free_slots] = layer * self.num_experts + loads
            slots[loads] = free_slots
            self._loaded[layer, loads] = self._num_requests
        return LoadPlan(layer, hits, hit_slots, loads, slots[loads], victims)

    def _make_room(self, layer: int, experts: IdArray, num_loads: int) -> IdArray:
        is_taken = self._owners >= 0
        excess = num_loads - int(self.capacity - is_taken.sum())
        if excess <= 0:
            return experts[:0]
        is_idle = is_taken.copy()
        needed = self._slots[layer, experts]
        is_idle[needed[needed >= 0]] = False
        victims = np.sort(self.choose_victims(layer, self._owners[is_idle], excess))
        taken = self._slots.reshape(-1)
        self._owners[taken[victims]] = -1
        taken[victims] = -1
        return victims
