"""Least frequent and recent use: uses divided by the time since the last one.

A compromise between LFU, which never forgets, and LRU, which knows one use only. Published systems
use the name for several scores; this is uses / (passes since the last use + 1).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from specfit.core.cache.base import caches
from specfit.core.cache.keyed import KeyedCache


@caches.register("lfru")
@dataclass(eq=False)
class Lfru(KeyedCache):
    """Evict the experts of the smallest use rate; of equal ones the lowest id first."""

    keys_follow_uses: ClassVar[bool] = True

    def reset(self) -> None:
        """See `ExpertCache.reset`."""
        super().reset()
        shape = (self.num_layers, self.num_experts)
        self._num_passes = 0
        self._uses = np.zeros(shape, np.int64)
        self._last_pass = np.zeros(shape, np.int64)

    @property
    def keys(self) -> NDArray[Any]:
        """Use rate of each expert, float64[L, E]."""
        return self._uses / (self._num_passes - self._last_pass + 1)

    def count_uses(self, where: Any) -> None:
        """See `KeyedCache.count_uses`."""
        self._uses[where] += 1
        self._last_pass[where] = self._num_passes

    def end_pass(self) -> None:
        """See `ExpertCache.end_pass`."""
        self._num_passes += 1
