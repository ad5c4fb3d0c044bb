"""Rules that order the residents by one number each: the smallest leaves first."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from specfit.core.cache._kernels import serve_pass, take_smallest
from specfit.core.cache.base import ExpertCache, IdArray, LoadPlan, needed_by


class KeyedCache(ExpertCache):
    """Evicts the experts of the smallest keys; `ties` decides between equal ones, then the id.

    One property to write: `keys`. Whole passes run in one kernel.
    """

    keys_follow_uses: ClassVar[bool] = False
    """Whether `count_uses` changes the keys."""

    @property
    @abstractmethod
    def keys(self) -> NDArray[Any]:
        """Key of each expert, [L, E].

        Nothing but `count_uses` changes it within a pass, unless it is `_last_used` or `_loaded`.
        """

    @property
    def ties(self) -> NDArray[Any]:
        """What decides between equal keys, [L, E]: the smaller leaves first."""
        return self.keys

    def count_uses(self, where: Any) -> None:
        """Count a use of the experts at an index of [L, E]; after their wave."""

    def request(self, layer: int, experts: IdArray) -> LoadPlan:
        """See `ExpertCache.request`."""
        plan = super().request(layer, experts)
        self.count_uses((layer, experts))
        return plan

    def choose_victims(self, layer: int, candidates: IdArray, count: int) -> IdArray:
        """See `ExpertCache.choose_victims`."""
        victims = np.empty(count, np.int64)
        take_smallest(self.keys[layer], self.ties[layer], candidates, victims)
        return victims

    def run_pass(self, routing: NDArray[np.int16]) -> IdArray:
        """See `ExpertCache.run_pass`."""
        needed = needed_by(routing, self.geometry)
        if self.keys_follow_uses and needed.sum(axis=1).max() > self.capacity:
            return super().run_pass(routing)  # the keys change from wave to wave
        self._note_pass(routing)
        counts = np.zeros((3, self.num_layers), np.int64)
        self._num_requests = serve_pass(
            self._slots,
            self.keys,
            self.ties,
            self._last_used,
            self._loaded,
            needed,
            self.capacity,
            self._num_requests,
            counts,
        )
        self.count_uses(needed)
        self.end_pass()
        return counts
