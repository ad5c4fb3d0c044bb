"""Least frequently used with decay: uses long past count less; the least used expert leaves first.

Source: the frequency counters of MoE offloading systems. With ``decay=1`` it is plain LFU over the
whole request. An expert's count survives its eviction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from specfit.core.cache.base import ExpertCache, IdArray, LoadPlan, caches
from specfit.core.errors import InvalidInputError


@caches.register("lfu")
@dataclass(eq=False)
class Lfu(ExpertCache):
    """Evict the experts of the smallest decayed use count; of equal ones the lowest id first.

    Parameters
    ----------
    decay : float
        Factor on a use for each pass since; above 0 and at most 1.
    """

    decay: float = 0.95

    def __post_init__(self) -> None:
        if not 0 < self.decay <= 1:
            raise InvalidInputError(f"decay must be above 0 and at most 1; got {self.decay}.")

    def reset(self) -> None:
        """See `ExpertCache.reset`."""
        super().reset()
        self._num_passes = 0
        # Log of the sum of decay ** -pass over the uses: their order does not change with time.
        self._log_uses = np.full((self.num_layers, self.num_experts), -np.inf)

    def request(self, layer: int, experts: IdArray) -> LoadPlan:
        """See `ExpertCache.request`."""
        plan = super().request(layer, experts)
        use = -self._num_passes * math.log(self.decay)
        self._log_uses[layer, experts] = np.logaddexp(self._log_uses[layer, experts], use)
        return plan

    def choose_victims(self, layer: int, candidates: IdArray, count: int) -> IdArray:
        """See `ExpertCache.choose_victims`."""
        order = np.argsort(self._log_uses[layer, candidates], kind="stable")
        return np.sort(candidates[order[:count]])

    def end_pass(self) -> None:
        """See `ExpertCache.end_pass`."""
        self._num_passes += 1
