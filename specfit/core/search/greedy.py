"""The greedy rule, for comparison: add the best next node while that helps."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specfit.core.search.exact import check_takes_time
from specfit.core.search.problem import Price, SearchProblem, SearchResult, check_price


def evaluate(problem: SearchProblem, mask: NDArray[np.bool_]) -> tuple[float, float]:
    """Return A in tokens and T in seconds of a selection, recomputed from scratch.

    Parameters
    ----------
    mask : bool[N]
        The selection.
    """
    tokens = float(problem.path_probs[mask].sum())
    used = problem.demand.charged(mask)
    return tokens, problem.draft_s + problem.terms.pass_s(int(mask.sum()), used)


def greedy(problem: SearchProblem, *, price: Price = "cycle") -> SearchResult:
    """Return what adding one node at a time finds; same objective and result type as `exact`.

    From the root on, the child of a selected node that raises the objective most is added, until
    none raises it. Misses nodes that pay only together. The status is ``"greedy"`` and the upper
    bound infinite: a greedy rule proves nothing.
    """
    check_price(price)
    check_takes_time(problem, price)
    mask = np.zeros(len(problem), bool)
    mask[0] = True
    best = _objective(problem, mask, price)
    while mask.sum() < problem.node_limit:
        children = np.flatnonzero(~mask[1:] & mask[problem.parents[1:]]) + 1
        values = [_objective(problem, mask | (np.arange(len(mask)) == v), price) for v in children]
        if not values or not max(values) > best:
            break
        best = max(values)
        mask[children[int(np.argmax(values))]] = True
    tokens, seconds = evaluate(problem, mask)
    paid = best if price == "cycle" else float(price)
    return SearchResult(mask, best, float("inf"), "greedy", paid, tokens, seconds)


def _objective(problem: SearchProblem, mask: NDArray[np.bool_], price: Price) -> float:
    tokens, seconds = evaluate(problem, mask)
    return tokens / seconds if price == "cycle" else tokens - float(price) * seconds
