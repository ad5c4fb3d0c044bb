"""Random eviction: what a rule must beat to have learnt anything from the requests."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specfit.core.cache.base import ExpertCache, IdArray, caches


@caches.register("random")
@dataclass(eq=False)
class Random(ExpertCache):
    """Evict experts drawn at random, the same ones for the same requests.

    Parameters
    ----------
    key : int
        Key of the draws.
    """

    key: int = 0

    def choose_victims(self, layer: int, candidates: IdArray, count: int) -> IdArray:
        """See `ExpertCache.choose_victims`."""
        generator = np.random.default_rng([self.key, self._num_requests])
        return np.sort(generator.choice(candidates, count, replace=False))
