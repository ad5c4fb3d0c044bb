"""Experts made resident before a pass asks for them, and how many of them it then did not need.

The simulator and the live backends keep account with it, so that what is resident after a prefetch
is the same in both.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from specfit.core.cache.base import ExpertCache, LoadPlan, needed_by
from specfit.core.errors import InvalidInputError
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
            How much each expert is wanted, finite; 0 is not at all.
        cache : ExpertCache
            Between two passes.

        Returns
        -------
        list of LoadPlan
            What is to be copied, in layer order.

        Raises
        ------
        InvalidInputError
            `wanted` has another shape, or a value that is negative or not finite.
        """
        self._check(wanted)
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

    def _check(self, wanted: NDArray[np.float32]) -> None:
        shape = (self.geometry.num_layers, self.geometry.num_experts)
        if wanted.shape != shape:
            raise InvalidInputError(
                f"a prefetcher must say how much each expert is wanted, {list(shape)}; "
                f"got {list(wanted.shape)}. Start from PrefetchView.nothing()."
            )
        least, most = float(wanted.min()), float(wanted.max())
        if not (least >= 0 and most < np.inf):
            raise InvalidInputError(
                f"an expert must be wanted 0 (not at all) or more, a finite number; got values "
                f"from {least} to {most}. Run specfit check prefetcher."
            )

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
