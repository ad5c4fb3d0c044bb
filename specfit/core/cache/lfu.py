"""Least frequently used with decay: uses long past count less; the least used expert leaves first.

Source: the frequency counters of MoE offloading systems. With ``decay=1`` it is plain LFU over the
whole request. An expert's count survives its eviction.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from specfit.core.cache.base import caches
from specfit.core.cache.keyed import KeyedCache
from specfit.core.errors import InvalidInputError


@caches.register("lfu")
@dataclass(eq=False)
class Lfu(KeyedCache):
    """Evict the experts of the smallest decayed use count; of equal ones the lowest id first.

    Parameters
    ----------
    decay : float
        Factor on a use for each pass since; above 0 and at most 1.
    """

    keys_follow_uses: ClassVar[bool] = True

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

    @property
    def keys(self) -> NDArray[Any]:
        """Log of the decayed uses of each expert, float64[L, E]."""
        return self._log_uses

    def count_uses(self, where: Any) -> None:
        """See `KeyedCache.count_uses`."""
        use = -self._num_passes * math.log(self.decay)
        self._log_uses[where] = np.logaddexp(self._log_uses[where], use)

    def end_pass(self) -> None:
        """See `ExpertCache.end_pass`."""
        self._num_passes += 1
