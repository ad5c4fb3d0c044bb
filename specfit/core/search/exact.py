"""The exact search of one drafted tree."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from specfit.core._line import line
from specfit.core.errors import InvalidInputError
from specfit.core.search import _affine, _knapsack, _rows
from specfit.core.search.general import search_general
from specfit.core.search.problem import Price, SearchProblem, SearchResult, check_price


def exact(
    problem: SearchProblem, *, price: Price = "cycle", max_expansions: int = 20_000
) -> SearchResult:
    """Find the selection with the most expected committed tokens per second.

    Maximises ``A(S) / T(S)`` for ``price="cycle"``, ``A(S) - price * T(S)`` for a number, over all
    selections S, with A the sum of `path_probs` and

        T(S) = draft_s[levels] + tau_s[|S|] + sum over experts of weight_s * min(1, sum of r_v)

    and the copies of ``terms.copies`` besides, if there are any.

    Parameters
    ----------
    problem : SearchProblem
        The tree, its demand and the cost terms.
    price : "cycle" or float
        What a second costs, in tokens.
    max_expansions : int
        Subproblems that branch and bound may look at.

    Returns
    -------
    SearchResult
        Of all best selections the one with the fewest nodes. Under affine costs there is only one
        such; else, of several, the first found by a fixed order. Branch and bound looks for smaller
        ones after it has proved the optimum, as far as `max_expansions` goes.

    Notes
    -----
    Affine costs take polynomial time: rounds of bounds, then if need be one minimum cut a price. So
    does any `tau_s` and node limit where no expert is shared: a tree knapsack. Everything else is
    branch and bound, and ends with a bound if it must. The answer is exact for the given demand,
    costs and probabilities; they are models.

    Examples
    --------
    >>> import numpy as np
    >>> from specfit.core.cost import CostTerms
    >>> from specfit.core.search import RoutingPricer
    >>> weight_s = np.array([[1.0, 1.0, 1.0]])
    >>> pricer = RoutingPricer()
    >>> pricer.start(weight_s)
    >>> parents, path_probs = np.array([-1, 0, 0], np.int32), np.array([1.0, 0.6, 0.3])
    >>> pricer.extend(parents, path_probs, np.array([[[0]], [[0]], [[2]]], np.int16))
    >>> terms = CostTerms(np.zeros(1), np.array([0.0, 1.0, 1.0, 1.0]), weight_s)
    >>> problem = SearchProblem(parents, path_probs, pricer.demand(), terms, levels=0)
    >>> exact(problem).mask.tolist()  # node 1 shares the root's expert, node 2 needs its own
    [True, True, False]
    """
    check_price(price)
    return search_from(problem, np.zeros(len(problem), bool), price, max_expansions)


def search_from(
    problem: SearchProblem, start: NDArray[np.bool_], price: Price, max_expansions: int = 20_000
) -> SearchResult:
    """See `exact`; a good selection to `start` from, or an empty mask, changes the time only."""
    check_takes_time(problem, price)
    if problem.terms.copies is None:
        is_line, fixed_s, node_s = line(problem.tau_s)
        if is_line:
            result = search_line(problem, price, fixed_s + problem.draft_s, node_s, start)
            if result.num_nodes <= problem.node_limit:
                return result
        if not _rows.any_binds(problem.demand.totals):
            return _search_sizes(problem, price)
    return search_general(problem, price, max_expansions)


def check_takes_time(problem: SearchProblem, price: Price) -> None:
    """Raise if tokens per second are asked for and a cycle of the root alone takes none."""
    if price != "cycle" or problem.tau_s[1] > 0.0:
        return
    root_s = problem.draft_s + problem.tau_s[1] + problem.demand.full_s[0]
    if not root_s > 0.0:
        raise InvalidInputError(
            f"a cycle must take time; draft_s[{problem.levels}] + tau_s[1] + experts of the root = "
            f"{root_s}. Give tau_s[1] > 0, or a number as price."
        )


def search_line(
    problem: SearchProblem,
    price: Price,
    fixed_s: float,
    node_s: float,
    hint: NDArray[np.bool_],
) -> SearchResult:
    """Search with ``T = fixed_s + node_s * |S| + experts``, starting from the selection `hint`."""
    demand = problem.demand
    is_ratio = price == "cycle"
    mask = np.empty(len(problem), bool)
    values = np.zeros(4)
    counts = np.zeros(2, np.int64)
    _affine.search_affine(
        problem.parents, problem.path_probs, fixed_s, node_s,
        _affine.RATIO if is_ratio else _affine.PRICE, 0.0 if price == "cycle" else float(price),
        demand.indptr, demand.cols, demand.vals, demand.weight_s, demand.full_s,
        demand.totals, hint, mask, values, counts,
    )  # fmt: skip
    return result_of(mask, [*values.tolist(), *counts.tolist()], is_ratio)


def _search_sizes(problem: SearchProblem, price: Price) -> SearchResult:
    """Search when no expert is shared: any `tau_s` and node limit, by the tree knapsack."""
    is_ratio = price == "cycle"
    mask = np.empty(len(problem), bool)
    values = np.zeros(4)
    rounds = _knapsack.search_sizes(
        problem.parents, problem.path_probs, problem.demand.full_s, problem.draft_s,
        problem.tau_s, problem.node_limit, is_ratio,
        0.0 if price == "cycle" else float(price), _affine.SLACK, mask, values,
    )  # fmt: skip
    return result_of(mask, [*values.tolist(), rounds, 0], is_ratio)


def result_of(mask: NDArray[np.bool_], values: Sequence[float], is_ratio: bool) -> SearchResult:
    """Return an optimal result from a kernel's mask and its numbers, by place as in `_sharing`."""
    tokens, seconds, price, _, rounds, cuts = values
    objective = price if is_ratio else tokens - price * seconds
    return SearchResult(
        mask, objective, objective, "optimal", price, is_ratio, tokens, seconds, int(rounds),
        int(cuts),
    )  # fmt: skip
