"""The control for claims of locality: the same passes in an order drawn at random.

A cache gains from experts that are popular in all texts, from those that are popular in one text,
and from what one pass shares with the next. Shuffling the passes takes the later ones away and
leaves the earlier: what a cache loses by it is what locality gave.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core.cache.base import ExpertCache
from specfit.core.decode import DecodeResult
from specfit.sim.expert_pass import run_pass, run_prefill

Pass = NDArray[np.int16]


@dataclass(frozen=True)
class LocalityControl:
    """Experts that a cache copies for the same passes in other orders.

    Parameters
    ----------
    ordered_misses : int
        The passes as they came.
    shuffled_misses : int
        The passes of each text in an order drawn at random: what is popular in the text is left.
    dealt_misses : int
        The passes of all texts dealt to them at random, as many to each as it had: what is popular
        in all of them is left.
    """

    ordered_misses: int
    shuffled_misses: int
    dealt_misses: int


def locality_control(
    results: Sequence[DecodeResult], cache: ExpertCache, rng: np.random.Generator
) -> LocalityControl:
    """Return what the cache copies when the cycles of these requests come in other orders.

    Nothing is prefetched here, whatever the requests did.

    Parameters
    ----------
    cache : ExpertCache
        Of the rule and size in question; it is emptied and filled by each prompt, whose own copies
        are not counted, as in `Metrics.num_misses`.
    rng : numpy.random.Generator
        Draws the orders.
    """
    passes = [[c.outcome.verification.routing for c in result.cycles] for result in results]
    shuffled = [_in_drawn_order(of_text, rng) for of_text in passes]
    pool = iter(_in_drawn_order([p for of_text in passes for p in of_text], rng))
    dealt = [[next(pool) for _ in of_text] for of_text in passes]
    return LocalityControl(
        *(count_misses(results, order, cache) for order in (passes, shuffled, dealt))
    )


def count_misses(
    results: Sequence[DecodeResult], passes: Sequence[Sequence[Pass]], cache: ExpertCache
) -> int:
    """Return the experts copied when each prompt is followed by the passes given for it.

    Parameters
    ----------
    passes : sequence of sequences of int16[n, L, K]
        For each result, the routing of the passes that follow its prompt.
    """
    total = 0
    for result, of_text in zip(results, passes, strict=True):
        run_prefill(cache, result.prefill.routing, result.prefill.chunks)
        total += sum(int(run_pass(cache, routing).num_misses.sum()) for routing in of_text)
    return total


def _in_drawn_order(items: list[Any], rng: np.random.Generator) -> list[Any]:
    return [items[i] for i in rng.permutation(len(items))]
