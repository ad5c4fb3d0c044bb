"""SIEVE: a hand moves from the oldest expert to the newest and evicts the first one not used since.

Source: Zhang et al., NSDI 2024. Departs from it where a pass needs several experts at once: those
are passed over without losing their mark, and experts loaded together count as loaded in order of
their ids.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.cache._sieve_kernels import choose, requeue, serve_pass
from specfit.core.cache.base import ExpertCache, IdArray, LoadPlan, caches, needed_by


@caches.register("sieve")
@dataclass(eq=False)
class Sieve(ExpertCache):
    """Evict in order of loading, but spare once what was used since the hand last passed."""

    def reset(self) -> None:
        """See `ExpertCache.reset`."""
        super().reset()
        shape = (self.num_layers, self.num_experts)
        self._queues = np.zeros(shape, np.int64)  # residents, oldest first
        self._lengths = np.zeros(self.num_layers, np.int64)
        self._hands = np.zeros(self.num_layers, np.int64)  # place in the queue to look at next
        self._is_marked = np.zeros(shape, bool)

    def request(self, layer: int, experts: IdArray) -> LoadPlan:
        """See `ExpertCache.request`."""
        plan = super().request(layer, experts)
        self._is_marked[layer, plan.hits] = True
        return plan

    def _bring_in(self, layer: int, experts: IdArray) -> LoadPlan:
        plan = super()._bring_in(layer, experts)
        self._is_marked[layer, plan.loads] = False
        self._lengths[layer] = requeue(
            self._slots[layer], self._queues[layer], self._lengths[layer], plan.loads
        )
        return plan

    def choose_victims(self, layer: int, candidates: IdArray, count: int) -> IdArray:
        """See `ExpertCache.choose_victims`."""
        wanted_by = np.ones(self.num_experts, np.int64)
        wanted_by[candidates] = 0
        victims = np.empty(count, np.int64)
        self._hands[layer] = choose(
            self._queues[layer, : self._lengths[layer]],
            self._is_marked[layer],
            self._hands[layer],
            wanted_by,
            1,
            victims,
        )
        return np.sort(victims)

    def run_pass(self, routing: NDArray[np.int16]) -> IdArray:
        """See `ExpertCache.run_pass`."""
        counts = np.zeros((3, self.num_layers), np.int64)
        self._num_requests = serve_pass(
            self._slots,
            self._queues,
            self._lengths,
            self._hands,
            self._is_marked,
            self._last_used,
            self._loaded,
            needed_by(routing, self.geometry),
            self.capacity,
            self._num_requests,
            counts,
        )
        self.end_pass()
        return counts
