"""No cache: every activated expert is copied in every pass, the vanilla baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from specfit.core.cache.base import ExpertCache, IdArray, caches


@caches.register("none")
@dataclass(eq=False)
class NoCache(ExpertCache):
    """Keep nothing between passes; the slots are a staging area for the pass that runs."""

    keeps_experts: ClassVar[bool] = False

    def choose_victims(self, layer: int, candidates: IdArray, count: int) -> IdArray:
        """See `ExpertCache.choose_victims`; within a pass any used expert may go."""
        return candidates[:count]

    def end_pass(self) -> None:
        """Drop every expert."""
        self._slots[:] = -1
