"""Least recently used: the expert whose last use lies furthest back leaves first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specfit.core.cache.base import ExpertCache, IdArray, caches


@caches.register("lru")
@dataclass(eq=False)
class Lru(ExpertCache):
    """Evict the least recently used experts; of equally old ones the lowest id first."""

    def choose_victims(self, layer: int, candidates: IdArray, count: int) -> IdArray:
        """See `ExpertCache.choose_victims`."""
        order = np.argsort(self._last_used[layer, candidates], kind="stable")
        return np.sort(candidates[order[:count]])
