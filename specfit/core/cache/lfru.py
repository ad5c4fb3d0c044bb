"""Least frequent and recent use: uses divided by the time since the last one.

A compromise between LFU, which never forgets, and LRU, which knows one use only. Published systems
use the name for several scores; this is uses / (passes since the last use + 1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specfit.core.cache.base import ExpertCache, IdArray, LoadPlan, caches


@caches.register("lfru")
@dataclass(eq=False)
class Lfru(ExpertCache):
    """Evict the experts of the smallest use rate; of equal ones the lowest id first."""

    def reset(self) -> None:
        """See `ExpertCache.reset`."""
        super().reset()
        shape = (self.num_layers, self.num_experts)
        self._num_passes = 0
        self._uses = np.zeros(shape, np.int64)
        self._last_pass = np.zeros(shape, np.int64)

    def request(self, layer: int, experts: IdArray) -> LoadPlan:
        """See `ExpertCache.request`."""
        plan = super().request(layer, experts)
        self._uses[layer, experts] += 1
        self._last_pass[layer, experts] = self._num_passes
        return plan

    def choose_victims(self, layer: int, candidates: IdArray, count: int) -> IdArray:
        """See `ExpertCache.choose_victims`."""
        ages = self._num_passes - self._last_pass[layer, candidates] + 1
        order = np.argsort(self._uses[layer, candidates] / ages, kind="stable")
        return np.sort(candidates[order[:count]])

    def end_pass(self) -> None:
        """See `ExpertCache.end_pass`."""
        self._num_passes += 1
