"""A proof of optimality that can be checked without the search."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core._line import line
from specfit.core.errors import UnsupportedCostError
from specfit.core.search import _cut
from specfit.core.search.exact import search_line
from specfit.core.search.problem import Price, SearchProblem, SearchResult


@dataclass(frozen=True, eq=False)
class Certificate:
    """What each node pays of each expert's price, so that no selection gains more than the answer.

    At the price lambda of the result, ``0 <= shares[v, c] <= lambda * weight_s[c] * r_v(c)``, and a
    column's shares add up to at most ``lambda * weight_s[c]``. Whatever is selected, the shares of
    the selected nodes are then no more than what their experts cost, so the best closed subtree
    under the node prices ``path_probs[v] - lambda * node_s - sum of shares[v]`` bounds every
    selection. One pass over the tree finds it.

    Parameters
    ----------
    price : float
        Tokens a second, lambda.
    bar : float
        What no selection's ``A - price * T`` exceeds: 0 for the cycle's own rate, else the
        objective.
    shares : float64[N, C]
        Tokens.
    """

    price: float
    bar: float
    shares: NDArray[np.float64]


def certify(problem: SearchProblem, result: SearchResult) -> Certificate:
    """Return a certificate for the optimal `result` of an affine `problem`.

    `specfit.testing.certificate.check_certificate` checks it and trusts nothing of the search.

    Raises
    ------
    UnsupportedCostError
        The costs are not affine, or a node limit binds, so that every best selection without it
        is larger; there is no such proof then.
    """
    is_line, fixed_s, node_s = line(problem.tau_s)
    if not is_line or problem.terms.copies is not None:
        raise UnsupportedCostError("a certificate needs affine costs: a straight tau_s, no copies.")
    if problem.node_limit < len(problem):
        _check_limit(problem, result, fixed_s, node_s)
    demand = problem.demand
    shares = np.empty((len(problem), len(demand.weight_s)))
    _cut.fair_shares(
        problem.parents, problem.path_probs, node_s, result.price, demand.indptr, demand.cols,
        demand.vals, demand.weight_s, demand.totals, shares,
    )  # fmt: skip
    return Certificate(result.price, result.gain, shares)


def _check_limit(
    problem: SearchProblem, result: SearchResult, fixed_s: float, node_s: float
) -> None:
    """Raise if the best selection of any size, the smallest of equals, is above the node limit."""
    price: Price = "cycle" if result.is_ratio else result.price
    start = np.zeros(len(problem), bool)
    free = search_line(problem, price, fixed_s + problem.draft_s, node_s, start)
    if free.num_nodes > problem.node_limit:
        raise UnsupportedCostError(
            f"a certificate covers selections of any size; the limit of {problem.node_limit} of "
            f"{len(problem)} nodes binds: the best selection without it has {free.num_nodes}."
        )
