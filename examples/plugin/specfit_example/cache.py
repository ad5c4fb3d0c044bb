"""A rule of eviction that knows nothing: the highest ids leave first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.cache import ExpertCache


@dataclass(eq=False)
class HighestId(ExpertCache):
    """Evict the experts of the highest ids."""

    def choose_victims(
        self, layer: int, candidates: NDArray[np.int64], count: int
    ) -> NDArray[np.int64]:
        """Return the last of the candidates, which come in ascending order."""
        return candidates[len(candidates) - count :]
