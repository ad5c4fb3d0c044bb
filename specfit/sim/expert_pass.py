"""One pass of the target through an expert cache: what was there, what was copied, what left."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.cache.base import ExpertCache, needed_by


@dataclass(frozen=True, eq=False)
class PassCounts:
    """Counts of a pass by layer.

    Parameters
    ----------
    num_hits, num_misses, num_evictions : int64[L]
        Activated experts that were resident when their layer began, that were not, and experts that
        left.
    num_reads : int64[L]
        Misses that were first read from disk into host memory.
    """

    num_hits: NDArray[np.int64]
    num_misses: NDArray[np.int64]
    num_evictions: NDArray[np.int64]
    num_reads: NDArray[np.int64]


def run_pass(
    cache: ExpertCache, routing: NDArray[np.int16], host: ExpertCache | None = None
) -> PassCounts:
    """Take the experts of a pass through the cache, layer by layer, and end the pass.

    Parameters
    ----------
    cache : ExpertCache
        Its contents change as they would in a live pass.
    routing : int16[n, L, K]
        Experts of each token of the pass.
    host : ExpertCache, optional
        Holds the experts in host memory; asked for what the cache misses.
    """
    if host is None:
        hits, misses, evictions = cache.run_pass(routing)
        return PassCounts(hits, misses, evictions, np.zeros(cache.num_layers, np.int64))
    needed = needed_by(routing, cache.geometry)
    missing = needed & ~cache.residency().mask
    hits, misses, evictions = cache.run_pass(routing)
    reads = [
        read_from_disk(host, layer, np.flatnonzero(missing[layer]))
        for layer in range(cache.num_layers)
    ]
    host.end_pass()
    return PassCounts(hits, misses, evictions, np.array(reads, np.int64))


def read_from_disk(host: ExpertCache, layer: int, experts: NDArray[np.int64]) -> int:
    """Bring experts of a layer into host memory; return how many were on disk."""
    return sum(len(wave.loads) for wave in host.waves(layer, experts))


def run_prefill(
    cache: ExpertCache,
    routing: NDArray[np.int16],
    chunks: tuple[int, ...],
    host: ExpertCache | None = None,
) -> None:
    """Empty the cache and fill it as the prompt does, a pass for each chunk.

    Parameters
    ----------
    routing : int16[T, L, K]
        Experts of each prompt token.
    chunks : tuple of int
        Tokens of each pass; they sum to T.
    host : ExpertCache, optional
        As in `run_pass`; emptied likewise.
    """
    cache.reset()
    if host is not None:
        host.reset()
    first = 0
    for size in chunks:
        run_pass(cache, routing[first : first + size], host)
        first += size
