"""Passes whose routing is given: what forced decoding asks of the machine that runs them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core.cache.base import ExpertCache, LoadPlan


@dataclass(frozen=True, eq=False)
class PassCounts:
    """Counts of a pass by layer.

    Parameters
    ----------
    num_hits, num_misses, num_evictions : int64[L]
        Activated experts that were resident when their layer began, that were not, and experts that
        left.
    num_reads : int64[L]
        Experts that were first read from disk into host memory.
    """

    num_hits: NDArray[np.int64]
    num_misses: NDArray[np.int64]
    num_evictions: NDArray[np.int64]
    num_reads: NDArray[np.int64]

    @classmethod
    def zeros(cls, num_layers: int) -> PassCounts:
        """Return the counts of a pass that has not begun."""
        return cls(*(np.zeros(num_layers, np.int64) for _ in range(4)))

    def add(self, plan: LoadPlan) -> None:
        """Count one wave of the device's cache."""
        self.num_hits[plan.layer] += len(plan.hits)
        self.num_misses[plan.layer] += len(plan.loads)
        self.num_evictions[plan.layer] += len(plan.evictions)


@dataclass(frozen=True, eq=False)
class RanPass:
    """What a pass took.

    Parameters
    ----------
    counts : PassCounts
        Of its experts, by layer.
    stall_s, compute_s : float
        Seconds that it waited for copies, and its other seconds.
    num_prefetched, num_wasted : int
        Experts that were copied ahead of it, and those of them that it did not need.
    num_reads : int
        Experts that were read from disk into host memory, for it and ahead of it.
    """

    counts: PassCounts
    stall_s: float
    compute_s: float
    num_prefetched: int = 0
    num_wasted: int = 0
    num_reads: int = 0


class PassRunner(ABC):
    """Moves and computes the experts of passes for real; which experts, it is told.

    Attributes
    ----------
    cache : ExpertCache
        Rules what is resident.
    host : ExpertCache, optional
        Rules what is in host memory, where a disk holds the rest.
    """

    cache: ExpertCache
    host: ExpertCache | None = None

    @abstractmethod
    def reset(self) -> None:
        """Forget what is resident."""

    @abstractmethod
    def prefetch(self, wanted: NDArray[np.float32]) -> None:
        """Copy experts ahead of the next pass: how much each is wanted, float32[L, E]; 0 not."""

    @abstractmethod
    def run(self, routing: NDArray[np.int16]) -> RanPass:
        """Run a pass over n tokens; `routing`, int16[n, L, K], are the experts of each.

        Raises
        ------
        BackendError
            A copy failed; nothing is resident then.
        """

    @abstractmethod
    def clock(self) -> float:
        """Return the seconds of the machine's monotonic clock."""

    @abstractmethod
    def describe(self) -> dict[str, Any]:
        """Return what a result must say of the machine: device, link, weights, precision."""
