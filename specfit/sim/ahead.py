"""Copies made ahead of the pass that comes, in simulated time: when they began, where from."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from specfit.core.cache.ahead import AheadOfPass
from specfit.core.cache.base import ExpertCache
from specfit.core.experts import ModelGeometry
from specfit.core.pass_time import NOTHING_AHEAD, CopiesAhead
from specfit.sim.expert_pass import read_from_disk


@dataclass
class TimedAhead:
    """Keeps account of what is prefetched until the pass takes it."""

    geometry: ModelGeometry
    _made: AheadOfPass = field(init=False)
    _num_reads: int = field(default=0, init=False)
    _since_s: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self._made = AheadOfPass(self.geometry)

    def fetch(
        self,
        wanted: NDArray[np.float32],
        cache: ExpertCache,
        host: ExpertCache | None,
        now_s: float,
    ) -> None:
        """Make experts resident as `AheadOfPass.fetch` does.

        Parameters
        ----------
        wanted : float32[L, E]
            How much each expert is wanted; 0 is not at all.
        now_s : float
            When this is asked for.
        """
        if self._made.is_empty:
            self._since_s = now_s
        for plan in self._made.fetch(wanted, cache):
            if host is not None:
                self._num_reads += read_from_disk(host, plan)

    def take(self, routing: NDArray[np.int16], now_s: float) -> tuple[CopiesAhead, int]:
        """Return what was copied ahead of a pass, and how much of it was for nothing; forget it.

        Parameters
        ----------
        routing : int16[n, L, K]
            Experts of each token of the pass.
        now_s : float
            When the pass starts.
        """
        if self._made.is_empty:
            return NOTHING_AHEAD, 0
        num_copies, num_wasted = self._made.take(routing)
        ahead = CopiesAhead(num_copies, self._num_reads, now_s - self._since_s)
        self._num_reads = 0
        return ahead, num_wasted
