"""Rules that order the residents by one number each: the smallest leaves first."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from specfit.core.cache._kernels import serve_pass, take_smallest
from specfit.core.cache.base import ExpertCache, IdArray


class KeyedCache(ExpertCache):
    """Evicts the experts of the smallest keys; of equal ones the lowest id first.

    One property to write: `keys`. Whole passes run in one kernel.
    """

    @property
    @abstractmethod
    def keys(self) -> IdArray:
        """Key of each expert, int64[L, E], as it stands when victims are chosen."""

    def choose_victims(self, layer: int, candidates: IdArray, count: int) -> IdArray:
        """See `ExpertCache.choose_victims`."""
        victims = np.empty(count, np.int64)
        take_smallest(self.keys[layer], candidates, victims)
        return victims

    def run_pass(self, routing: NDArray[np.int16]) -> IdArray:
        """See `ExpertCache.run_pass`."""
        counts = np.zeros((3, self.num_layers), np.int64)
        self._num_requests = serve_pass(
            self._slots,
            self.keys,
            self._last_used,
            self._loaded,
            self._needed(routing),
            self.capacity,
            self._num_requests,
            counts,
        )
        self.end_pass()
        return counts
