"""The search of one cycle, level by level: price what is new, answer again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core._line import line
from specfit.core.cost import CostTerms
from specfit.core.search import _affine, _sharing
from specfit.core.search.exact import check_takes_time, result_of, search_from
from specfit.core.search.pricing import ProbPricer, RoutingPricer, read_only
from specfit.core.search.problem import (
    Price,
    SearchProblem,
    SearchResult,
    as_parents,
    check_levels,
    check_price,
    check_takes_a_node,
    check_tree,
)
from specfit.core.search.stop import StopDecision, check_look_ahead, should_draft

_NOTHING = np.zeros(0, bool)
_NOTHING_S = np.zeros(0)
_INT32, _FLOAT64 = np.dtype(np.int32), np.dtype(np.float64)


class LevelSearch:
    """Searches a draft tree that grows; one object serves many cycles and keeps its memory.

    Call `start` once a cycle, then `add_level` with the root alone, then once a drafted level;
    `best` and `should_draft` answer for the tree so far. `advance` takes a level and says whether
    to go on, in one call.

    Parameters
    ----------
    pricer : ProbPricer or RoutingPricer
        How predictions become prices.
    price : "cycle" or float
        See `exact`.

    Attributes
    ----------
    listener : callable or None
        Called with each decision of `should_draft` and `advance`, for those who explain it.
        `advance` then decides by `should_draft`, which says by how much.
    """

    def __init__(self, pricer: ProbPricer | RoutingPricer, *, price: Price = "cycle") -> None:
        check_price(price)
        self.listener: Callable[[StopDecision], None] | None = None
        self.pricer = pricer
        self.price = price
        self._table = np.zeros(0)
        self._line = (False, 0.0, 0.0)
        self._numbers = np.zeros(6)
        self.forget()

    def forget(self) -> None:
        """Leave the cycle in hand: nothing can be asked until the next `start`."""
        self._levels = -1
        self._best: SearchResult | None = None
        self._last = _NOTHING
        self._problem: SearchProblem | None = None

    def start(
        self,
        terms: CostTerms,
        *,
        max_nodes: int | None = None,
        layers: NDArray[np.bool_] | None = None,
    ) -> None:
        """Begin a cycle with these costs and node limit.

        With `layers`, bool[L], predictions come for these layers alone, and the experts of the
        others cost nothing; see `ProbPricer.start`.

        Raises
        ------
        InvalidInputError
            The costs have no pass over one node.
        """
        self.forget()
        check_takes_a_node(terms)
        self._terms = terms
        self._max_nodes = max_nodes
        self.pricer.start(terms.weight_s, None if terms.copies is None else terms.is_priced, layers)
        self._draft_s = read_only(terms.draft_s)
        most = len(terms.tau_s) - 1
        self._limit = most if max_nodes is None else min(most, max_nodes)
        self._is_one_call = self._can_be_one_call()

    def add_level(
        self,
        parents: NDArray[np.int32],
        path_probs: NDArray[np.float64],
        predicted: Any,
        *,
        num_new: int = 1,
    ) -> None:
        """Take the tree with one more level; the first call brings the root.

        Parameters
        ----------
        parents, path_probs : int32[N], float64[N]
            Of the whole tree so far; nodes of earlier levels must be unchanged.
        predicted : float32[n, l, E] or integer[n, L, K]
            Of the n new nodes only, for the pricer's `extend`; l is L unless `start` named layers.
        num_new : int
            Levels that are new, where nothing was asked of those between.
        """
        check_levels(self._levels + num_new, self._terms)
        self.pricer.extend(parents, path_probs, predicted)
        self._take(parents, path_probs, num_new)
        _ = self.problem  # checks the rest

    def search_tree(
        self,
        terms: CostTerms,
        parents: NDArray[np.int32],
        path_probs: NDArray[np.float64],
        predicted: Any,
        *,
        levels: int,
        max_nodes: int | None = None,
    ) -> SearchResult:
        """Begin a cycle with a whole tree of so many drafted levels, and return its best selection.

        Gives what `exact` gives; under affine costs in one compiled call from arrays to the answer.

        Parameters
        ----------
        terms, max_nodes
            See `start`.
        parents, path_probs, predicted
            See `add_level`.
        levels : int
            Drafted levels, for ``terms.draft_s``.
        """
        check_levels(levels, terms)
        self.start(terms, max_nodes=max_nodes)
        self._levels = levels - 1
        if self._is_one_call:
            self._advance(parents, path_probs, predicted, _NOTHING_S, _NOTHING, 1)
        else:
            self.add_level(parents, path_probs, predicted)
        return self.best()

    def advance(
        self,
        parents: NDArray[np.int32],
        path_probs: NDArray[np.float64],
        predicted: Any,
        growth: NDArray[np.float64],
        expandable: NDArray[np.bool_],
        *,
        num_new: int = 1,
    ) -> int:
        """Take one more level and return how many further ones are found to pay, 0 if none.

        Gives what `add_level` and then `should_draft` give; under affine costs in one compiled
        call, which halves the time between passes of a model.

        Parameters
        ----------
        parents, path_probs, predicted, num_new
            See `add_level`.
        growth : float64[J] or float64[N, J]
            See `specfit.core.search.should_draft`, as is `expandable`; empty where no further level
            is in question.
        """
        if self.listener is not None or not self._is_one_call or growth.ndim > 1:
            levels = self._levels + num_new
            if len(growth):
                check_look_ahead(len(parents), growth, expandable, self._terms, levels)
            self.add_level(parents, path_probs, predicted, num_new=num_new)
            return self.should_draft(growth, expandable).levels_ahead if len(growth) else 0
        levels_ahead = self._advance(parents, path_probs, predicted, growth, expandable, num_new)
        if self._best is None and len(growth):
            return self.should_draft(growth, expandable).levels_ahead
        return levels_ahead

    @property
    def levels(self) -> int:
        """Drafted levels of the tree so far; -1 before the first call of a cycle."""
        return self._levels

    @property
    def terms(self) -> CostTerms:
        """The costs of this cycle."""
        return self._terms

    @property
    def problem(self) -> SearchProblem:
        """The tree so far as a search problem."""
        if self._problem is None:
            self._problem = SearchProblem(
                self._parents, self._path_probs, self.pricer.demand(), self._terms, self._levels,
                self._max_nodes,
            )  # fmt: skip
        return self._problem

    def best(self) -> SearchResult:
        """Return the best selection of the tree so far.

        The search starts from the last level's selection, priced at the new depth.
        """
        if self._best is None:
            start = np.zeros(len(self.problem), bool)
            start[: len(self._last)] = self._last
            self._best = search_from(self.problem, start, self.price)
            self._last = self._best.mask
        return self._best

    def should_draft(
        self, growth: NDArray[np.float64], expandable: NDArray[np.bool_]
    ) -> StopDecision:
        """Decide whether another level can beat `best`; see `specfit.core.search.should_draft`."""
        decision = should_draft(self.problem, self.best(), growth, expandable)
        if self.listener is not None:
            self.listener(decision)
        return decision

    def _take(
        self, parents: NDArray[np.int32], path_probs: NDArray[np.float64], num_new: int
    ) -> None:
        self._parents, self._path_probs = parents, path_probs
        self._levels += num_new
        self._best = self._problem = None

    def _can_be_one_call(self) -> bool:
        """Return whether one compiled call can answer; looks at each table of seconds once."""
        if self._terms.copies is not None:
            return False
        if self._terms.tau_s is not self._table:
            self._table = self._terms.tau_s
            self._line = line(self._table.copy())
        return self._line[0] and not self.pricer.is_free

    def _advance(
        self,
        parents: NDArray[np.int32],
        path_probs: NDArray[np.float64],
        predicted: Any,
        growth: NDArray[np.float64],
        expandable: NDArray[np.bool_],
        num_new: int,
    ) -> int:
        """Do the compiled call and keep the best selection; return the levels ahead that win.

        If the selection has more nodes than it may, none is kept.
        """
        # Kernels are compiled for writable arrays, so each array gets a private copy; one that does
        # not change the type is faster.
        parents = parents.copy() if parents.dtype is _INT32 else as_parents(parents)
        if path_probs.dtype is _FLOAT64:
            path_probs = path_probs.copy()
        else:
            path_probs = np.array(path_probs, np.float64)
        count, ahead = len(parents), len(growth)
        if parents.ndim != 1 or path_probs.shape != (count,):
            check_tree(parents, path_probs)
        draft_s, levels = self._draft_s, self._levels + num_new
        if levels + ahead >= len(draft_s) or (ahead and len(expandable) != count):
            check_look_ahead(count, growth, expandable, self._terms, levels)
        _, fixed_s, node_s = self._line
        if self.price == "cycle":
            is_ratio, mode, price = True, _affine.RATIO, 0.0
        else:
            is_ratio, mode, price = False, _affine.PRICE, float(self.price)
        mask, numbers = np.empty(count, bool), self._numbers
        task = (
            draft_s, levels, fixed_s, node_s, mode, price, growth, expandable, self._last, mask,
            numbers,
        )  # fmt: skip
        answer = self.pricer.answer(parents, path_probs, predicted, task)
        if answer < 0:
            check_tree(parents, path_probs)
            check_look_ahead(count, growth, expandable, self._terms, levels)
        self._take(parents, path_probs, num_new)
        values = numbers.tolist()
        if is_ratio and not values[_sharing.SECONDS] > 0.0:
            check_takes_time(self.problem, self.price)
        self._last = mask
        if self._limit >= count or np.count_nonzero(mask) <= self._limit:
            self._best = result_of(mask, values, is_ratio)
        return answer
