"""No cache: every activated expert is copied in every pass, the vanilla baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from specfit.core.cache.base import IdArray, caches
from specfit.core.cache.keyed import KeyedCache


@caches.register("none")
@dataclass(eq=False)
class NoCache(KeyedCache):
    """Keep nothing between passes; the slots are a staging area for the pass that runs."""

    keeps_experts: ClassVar[bool] = False

    @property
    def keys(self) -> IdArray:
        """All equal: within a pass any used expert may go, so the lowest id does."""
        return np.zeros((self.num_layers, self.num_experts), np.int64)

    def end_pass(self) -> None:
        """Drop every expert."""
        self._slots[:] = -1
