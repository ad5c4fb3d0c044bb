"""A tree with phantom nodes: the plain form of the stop rule, for any cost and as its reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from specfit.core.search.demand import Demand
from specfit.core.search.problem import SearchProblem


def with_phantoms(
    problem: SearchProblem,
    growth: NDArray[np.float64],
    expandable: NDArray[np.bool_],
    ahead: int,
) -> SearchProblem:
    """Return `problem` as it could be after `ahead` more levels, at best.

    Under every expandable node hangs a chain of `ahead` phantoms that need no expert. The i-th has
    the node's path probability times the first i entries of its growth.

    Parameters
    ----------
    growth : float64[N, J]
        ``J >= ahead``; see `specfit.core.search.should_draft`.
    expandable : bool[N]
        Nodes that the drafter may still give children.
    """
    parents, path_probs = problem.parents.tolist(), problem.path_probs.tolist()
    for node in np.flatnonzero(expandable).tolist():
        tip = node
        for step in range(ahead):
            path_probs.append(path_probs[tip] * float(growth[node, step]))
            parents.append(tip)
            tip = len(parents) - 1
    limit = None if problem.node_limit == len(problem) else problem.node_limit
    return SearchProblem(
        np.array(parents, np.int32),
        np.array(path_probs),
        _with_blank_rows(problem.demand, len(parents) - len(problem)),
        problem.terms,
        problem.levels + ahead,
        limit,
    )


def _with_blank_rows(demand: Demand, count: int) -> Demand:
    """Return the demand with `count` more nodes that need nothing."""
    entries = len(demand) * len(demand.weight_s)
    is_dense = not demand.cols.size
    blank = np.zeros(count * len(demand.weight_s), np.float32)
    return replace(
        demand,
        factors=np.append(demand.factors, np.ones(count, np.float32)),
        vals=np.append(demand.vals[:entries], blank) if is_dense else demand.vals,
        indptr=demand.indptr
        if is_dense
        else np.append(demand.indptr, np.full(count, demand.indptr[-1])),
        full_s=np.append(demand.full_s, np.zeros(count)),
    )
