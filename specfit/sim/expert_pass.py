"""One pass of the target through an expert cache: what was there, what was copied, what left."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specfit.core.cache.base import ExpertCache, LoadPlan
from specfit.core.passes import PassCounts


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
        Holds the experts in host memory; asked for what each wave of the cache loads.
    """
    if host is None:
        hits, misses, evictions = cache.run_pass(routing)
        return PassCounts(hits, misses, evictions, np.zeros(cache.num_layers, np.int64))
    counts = PassCounts.zeros(cache.num_layers)
    for wave in cache.pass_waves(routing):
        counts.add(wave)
        counts.num_reads[wave.layer] += read_from_disk(host, wave)
    host.end_pass()
    return counts


def read_from_disk(host: ExpertCache, plan: LoadPlan) -> int:
    """Bring what is to be loaded into host memory; return how many experts were on disk."""
    return sum(len(wave.loads) for wave in host.waves(plan.layer, plan.loads))


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
