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
    rows, limit = problem.demand.rows(), problem.node_limit
    mask = np.zeros(len(problem), bool)
    mask[0] = True
    tokens, load = float(problem.path_probs[0]), rows[0].copy()
    best = _objective(problem, 1, tokens, load, price)
    for num_nodes in range(2, limit + 1):
        children = np.flatnonzero(~mask[1:] & mask[problem.parents[1:]]) + 1
        values = [
            _objective(problem, num_nodes, tokens + problem.path_probs[v], load + rows[v], price)
            for v in children
        ]
        if not values or not max(values) > best:
            break
        added = children[int(np.argmax(values))]
        best = max(values)
        mask[added] = True
        tokens, load = tokens + float(problem.path_probs[added]), load + rows[added]
    tokens, seconds = evaluate(problem, mask)
    paid = best if price == "cycle" else float(price)
    return SearchResult(mask, best, float("inf"), "greedy", paid, price == "cycle", tokens, seconds)


def _objective(
    problem: SearchProblem, num_nodes: int, tokens: float, load: NDArray[np.float64], price: Price
) -> float:
    """Return the objective of a selection with this sum of rows, float64[C]."""
    used = np.zeros(problem.demand.shape[0] * problem.demand.shape[1])
    used[problem.demand.experts] = np.minimum(1.0, load)
    pass_s = problem.terms.pass_s(num_nodes, used.reshape(problem.demand.shape))
    seconds = problem.draft_s + pass_s
    return tokens / seconds if price == "cycle" else tokens - float(price) * seconds
