"""Least recently used: the expert whose last use lies furthest back leaves first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from specfit.core.cache.base import IdArray, caches
from specfit.core.cache.keyed import KeyedCache


@caches.register("lru")
@dataclass(eq=False)
class Lru(KeyedCache):
    """Evict the least recently used experts; of equally old ones the lowest id first."""

    is_stack_algorithm: ClassVar[bool] = True

    @property
    def keys(self) -> IdArray:
        """Number of the last request that needed each expert."""
        return self._last_used
