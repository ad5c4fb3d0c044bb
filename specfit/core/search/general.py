"""The search under general monotone costs: tables, overlap, node limits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specfit.core.search import _branch, _terms
from specfit.core.search.problem import Price, SearchProblem, SearchResult

_OVERLAPS = {
    "none": _terms.NONE,
    "layer": _terms.LAYER,
    "pass": _terms.PASS,
    "resident": _terms.RESIDENT,
}


def search_general(problem: SearchProblem, price: Price, max_expansions: int) -> SearchResult:
    """Search by branch and bound; see `exact`."""
    demand, copies = problem.demand, problem.terms.copies
    units, layer_of, layer_s = _copy_columns(problem)
    mask = np.zeros(len(problem), bool)
    values = np.zeros(5)
    expansions, is_optimal = _branch.search_general(
        problem.parents, problem.path_probs, problem.node_limit, problem.draft_s, problem.tau_s,
        price == "cycle", 0.0 if price == "cycle" else float(price),
        demand.indptr, demand.cols, demand.vals, demand.weight_s, units, layer_of, layer_s,
        _terms.NONE if copies is None else _OVERLAPS[copies.overlap], max_expansions, mask, values,
    )  # fmt: skip
    tokens, seconds, paid, _, upper = values.tolist()
    is_ratio = price == "cycle"
    objective = paid if is_ratio else tokens - paid * seconds
    return SearchResult(
        mask, objective, objective if is_optimal else max(objective, upper),
        "optimal" if is_optimal else "expansion limit", paid, is_ratio, tokens, seconds,
        num_expansions=expansions,
    )  # fmt: skip


def _copy_columns(
    problem: SearchProblem,
) -> tuple[NDArray[np.float64], NDArray[np.int32], NDArray[np.float64]]:
    """Return the copies and the layer of each column, and the copy table of each layer."""
    demand, copies = problem.demand, problem.terms.copies
    if copies is None:
        size = len(demand.weight_s)
        return np.zeros(size), np.zeros(size, np.int32), np.zeros((1, 2))
    units = copies.units.reshape(-1)[demand.experts]
    layer_of = (demand.experts // demand.shape[1]).astype(np.int32)
    return units, layer_of, copies.layer_s.copy()
