"""One pass of the target through an expert cache: what was there, what was copied, what left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.cache.base import ExpertCache


@dataclass(frozen=True, eq=False)
class PassCounts:
    """Counts of a pass by layer.

    Parameters
    ----------
    num_hits, num_misses, num_evictions : int64[L]
        Activated experts that were resident when their layer began, that were not, and experts that
        left.
    """

    num_hits: NDArray[np.int64]
    num_misses: NDArray[np.int64]
    num_evictions: NDArray[np.int64]


def run_pass(cache: ExpertCache, routing: NDArray[np.int16]) -> PassCounts:
    """Take the experts of a pass through the cache, layer by layer, and end the pass.

    Parameters
    ----------
    cache : ExpertCache
        Its contents change as they would in a live pass.
    routing : int16[n, L, K]
        Experts of each token of the pass.
    """
    return PassCounts(*cache.run_pass(routing))


def run_prefill(cache: ExpertCache, routing: NDArray[np.int16], chunks: tuple[int, ...]) -> None:
    """Empty the cache and fill it as the prompt does, a pass for each chunk.

    Parameters
    ----------
    routing : int16[T, L, K]
        Experts of each prompt token.
    chunks : tuple of int
        Tokens of each pass; they sum to T.
    """
    cache.reset()
    first = 0
    for size in chunks:
        run_pass(cache, routing[first : first + size])
        first += size
