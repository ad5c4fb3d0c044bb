"""Least recently used: the expert whose last use lies furthest back leaves first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from specfit.core.cache._kernels import take_smallest
from specfit.core.cache.base import ExpertCache, IdArray, caches


@caches.register("lru")
@dataclass(eq=False)
class Lru(ExpertCache):
    """Evict the least recently used experts; of equally old ones the lowest id first."""

    is_stack_algorithm: ClassVar[bool] = True

    def choose_victims(self, layer: int, candidates: IdArray, count: int) -> IdArray:
        """See `ExpertCache.choose_victims`."""
        victims = np.empty(count, np.int64)
        take_smallest(self._last_used[layer], candidates, victims)
        return victims
