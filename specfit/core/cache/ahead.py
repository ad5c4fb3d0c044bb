"""Experts made resident before a pass asks for them, and how many of them it then did not need.

The simulator and the live backends keep account with it, so that what is resident after a prefetch
is the same in both.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from specfit.core.cache.base import ExpertCache, LoadPlan, needed_by
from specfit.core.experts import ModelGeometry


@dataclass
class AheadOfPass:
    """What was fetched since the last pass, for the one that comes."""

    geometry: ModelGeometry
    _is_ahead: NDArray[np.bool_] | None = field(default=None, init=False)  # [L, E]
    _num_copies: int = field(default=0, init=False)

    @property
    def is_empty(self) -> bool:
        """Whether nothing has been asked for yet."""
        return self._is_ahead is None

    def fetch(self, wanted: NDArray[np.float32], cache: ExpertCache) -> list[LoadPlan]:
        """Make the most wanted experts resident; of equally wanted ones residents stay.

        Parameters
        ----------
        wanted : float32[L, E]
            How much each expert is wanted; 0 is not at all.
        cache : ExpertCache
            Between two passes.

        Returns
        -------
        list of LoadPlan
            What is to be copied, in layer order.
        """
        if self._is_ahead is None:
            self._is_ahead = np.zeros(wanted.shape, bool)
        plans = []
        for layer in np.flatnonzero(wanted.any(axis=1)).tolist():
            order = np.lexsort((cache.slot_of(layer) < 0, -wanted[layer]))
            plan = cache.prefetch(layer, order[: np.count_nonzero(wanted[layer])])
            self._is_ahead[layer, plan.loads] = True
            self._num_copies += len(plan.loads)
            if len(plan.loads):
                plans.append(plan)
        return plans

    def take(self, routing: NDArray[np.int16]) -> tuple[int, int]:
        """Return how many experts were copied ahead of a pass, how many in vain; forget them.

        Parameters
        ----------
        routing : int16[n, L, K]
            Experts of each token of the pass.
        """
        if self._is_ahead is None:
            return 0, 0
        num_wasted = int((self._is_ahead & ~needed_by(routing, self.geometry)).sum())
        num_copies, self._is_ahead, self._num_copies = self._num_copies, None, 0
        return num_copies, num_wasted
