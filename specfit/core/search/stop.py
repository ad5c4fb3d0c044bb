"""Whether to draft another level: the best at this depth against what more levels could bring."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core._line import line
from specfit.core.cost import CostTerms
from specfit.core.errors import InvalidInputError
from specfit.core.search import _affine, _checks, _stop
from specfit.core.search.exact import exact
from specfit.core.search.phantoms import with_phantoms
from specfit.core.search.problem import SearchProblem, SearchResult


@dataclass(frozen=True, eq=False, slots=True)
class StopDecision:
    """Whether another drafted level can pay.

    Parameters
    ----------
    draft : bool
        Whether some number of further levels beats the best at the current depth.
    levels_ahead : int
        A number of levels found to win, the best as far as bounds tell; 0 if none does.
    surplus : float64[J]
        Tokens by which 1 to J more levels beat stopping: at least this where positive, at most this
        where not; NaN where it was not needed.
    """

    draft: bool
    levels_ahead: int
    surplus: NDArray[np.float64]


def should_draft(
    problem: SearchProblem,
    best: SearchResult,
    growth: NDArray[np.float64],
    expandable: NDArray[np.bool_],
) -> StopDecision:
    """Decide whether to draft another level.

    For each j up to the levels left, a chain of j phantom nodes hangs under every node that may
    still be expanded; its i-th node has path probability ``P(v) * growth[0] * ... * growth[i - 1]``
    and needs no new expert. Drafting goes on if for some j the best selection of that tree, with
    the drafting time of j more levels, beats `best`: the time already drafted is spent, so only the
    current depth counts.

    Parameters
    ----------
    problem : SearchProblem
        The tree at the current depth. Under affine costs its node limit is ignored, so that more
        drafting looks no worse than it is.
    best : SearchResult
        Answer of the search on `problem`; its price is used.
    growth : float64[J] or float64[N, J]
        For the practical rule, the calibrated probability that one of the children drawn at that
        step is the target's token, for all nodes or by the node that the chain hangs under. All 1
        gives a certificate: if it says stop, no real continuation of up to J levels can win,
        provided that costs grow with the selection, sibling probabilities sum to at most 1, and
        later levels change neither the probabilities nor the demand of drafted nodes.
    expandable : bool[N]
        Nodes that the drafter may still give children.

    Raises
    ------
    InvalidInputError
        A shape does not fit, a probability is not one, or ``draft_s`` has no entry for J more
        levels.
    """
    n, ahead = len(problem), int(growth.shape[-1])
    check_look_ahead(n, growth, expandable, problem.terms, problem.levels)
    by_node = np.empty((n, ahead))
    by_node[:] = growth
    reach = n + ahead * int(np.count_nonzero(expandable))
    is_line, fixed_s, node_s = line(problem.terms.tau_s[: reach + 1].copy())
    if not is_line or problem.terms.copies is not None:
        return _search_phantoms(problem, best.price, best.gain, by_node, expandable)
    first = problem.levels + 1
    fixed = problem.terms.draft_s[first : first + ahead] + fixed_s
    return _look_ahead(problem, best.price, best.gain, by_node, np.array(expandable), fixed, node_s)


def _look_ahead(
    problem: SearchProblem,
    price: float,
    bar: float,
    growth: NDArray[np.float64],
    expandable: NDArray[np.bool_],
    fixed_s: NDArray[np.float64],
    node_s: float,
) -> StopDecision:
    """Decide under affine costs: phantoms are bonuses, and most answers need only bounds."""
    demand, surplus = problem.demand, np.empty(len(fixed_s))
    levels_ahead = _stop.look_ahead(
        problem.parents, problem.path_probs, expandable, growth, fixed_s, node_s, price, bar,
        demand.indptr, demand.cols, demand.vals, demand.weight_s, demand.full_s, demand.totals,
        surplus,
    )  # fmt: skip
    return StopDecision(levels_ahead > 0, levels_ahead, surplus)


def _search_phantoms(
    problem: SearchProblem,
    price: float,
    bar: float,
    growth: NDArray[np.float64],
    expandable: NDArray[np.bool_],
) -> StopDecision:
    """Decide by a search of the tree with its phantoms as nodes; for costs that are not affine."""
    surplus = np.full(growth.shape[1], np.nan)
    for ahead in range(1, len(surplus) + 1):
        grown = with_phantoms(problem, growth, expandable, ahead)
        result = exact(grown, price=price)
        surplus[ahead - 1] = result.upper_bound - bar
        if surplus[ahead - 1] > _affine.SLACK * result.expected_committed:
            return StopDecision(True, ahead, surplus)
    return StopDecision(False, 0, surplus)


def check_look_ahead(
    num_nodes: int,
    growth: NDArray[np.float64],
    expandable: NDArray[np.bool_],
    terms: CostTerms,
    levels: int,
) -> None:
    """Raise unless `growth` and `expandable` fit a tree of that many nodes and levels."""
    n, ahead = num_nodes, growth.shape[-1]
    if growth.shape not in ((ahead,), (n, ahead)) or expandable.shape != (n,):
        raise InvalidInputError(
            f"growth must be [J] or [{n}, J] and expandable [{n}]; "
            f"got {list(growth.shape)} and {list(expandable.shape)}."
        )
    left = len(terms.draft_s) - 1 - levels
    if ahead > left:
        raise InvalidInputError(
            f"growth looks {ahead} levels ahead, but draft_s knows only {left} more. "
            f"Give draft_s an entry for each level."
        )
    if not _checks.all_probs(np.ravel(growth)):
        wrong = ~((growth >= 0.0) & (growth <= 1.0))
        where = [int(i) for i in np.argwhere(wrong)[0]]
        raise InvalidInputError(
            f"growth{where} = {growth[tuple(where)]}, but a probability is from 0 to 1."
        )
