"""First in, first out: the expert that was copied in longest ago leaves first."""

from __future__ import annotations

from dataclasses import dataclass

from specfit.core.cache.base import IdArray, caches
from specfit.core.cache.keyed import KeyedCache


@caches.register("fifo")
@dataclass(eq=False)
class Fifo(KeyedCache):
    """Evict the experts loaded longest ago; of those loaded together the lowest id first."""

    @property
    def keys(self) -> IdArray:
        """Number of the request that loaded each expert."""
        return self._loaded
