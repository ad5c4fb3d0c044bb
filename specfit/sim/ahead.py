"""Copies made ahead of the pass that comes: what they are, when they began, what they were for."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from specfit.core.cache.base import ExpertCache
from specfit.core.experts import ModelGeometry
from specfit.core.pass_time import NOTHING_AHEAD, CopiesAhead
from specfit.sim.expert_pass import needed_by, read_from_disk


@dataclass
class AheadOfPass:
    """Keeps account of what is prefetched until the pass takes it."""

    geometry: ModelGeometry
    _is_ahead: NDArray[np.bool_] | None = field(default=None, init=False)  # [L, E]
    _num_copies: int = field(default=0, init=False)
    _num_reads: int = field(default=0, init=False)
    _since_s: float = field(default=0.0, init=False)

    def fetch(
        self,
        wanted: NDArray[np.float32],
        cache: ExpertCache,
        host: ExpertCache | None,
        now_s: float,
    ) -> None:
        """Make the most wanted experts resident; of equally wanted ones residents stay.

        Parameters
        ----------
        wanted : float32[L, E]
            How much each expert is wanted; 0 is not at all.
        now_s : float
            When this is asked for.
        """
        if self._is_ahead is None:
            self._is_ahead = np.zeros(wanted.shape, bool)
            self._since_s = now_s
        for layer in np.flatnonzero(wanted.any(axis=1)).tolist():
            order = np.lexsort((cache.slot_of(layer) < 0, -wanted[layer]))
            loads = cache.prefetch(layer, order[: np.count_nonzero(wanted[layer])]).loads
            self._is_ahead[layer, loads] = True
            self._num_copies += len(loads)
            if host is not None:
                self._num_reads += read_from_disk(host, layer, loads)

    def take(self, routing: NDArray[np.int16], now_s: float) -> tuple[CopiesAhead, int]:
        """Return what was copied ahead of a pass, and how much of it was for nothing; forget it.

        Parameters
        ----------
        routing : int16[n, L, K]
            Experts of each token of the pass.
        now_s : float
            When the pass starts.
        """
        if self._is_ahead is None:
            return NOTHING_AHEAD, 0
        ahead = CopiesAhead(self._num_copies, self._num_reads, now_s - self._since_s)
        num_wasted = int((self._is_ahead & ~needed_by(routing, self.geometry)).sum())
        self._is_ahead, self._num_copies, self._num_reads = None, 0, 0
        return ahead, num_wasted
