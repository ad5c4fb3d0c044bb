"""The search of one cycle, level by level: price what is new, answer again."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core.cost import CostTerms
from specfit.core.search.exact import search_from
from specfit.core.search.pricing import ProbPricer, RoutingPricer
from specfit.core.search.problem import Price, SearchProblem, SearchResult, check_price
from specfit.core.search.stop import StopDecision, should_draft


class LevelSearch:
    """Searches a draft tree that grows; one object serves many cycles and keeps its memory.

    Call `start` once a cycle, then `add_level` with the root alone, then once a drafted level;
    `best` and `should_draft` answer for the tree so far.

    Parameters
    ----------
    pricer : ProbPricer or RoutingPricer
        How predictions become prices.
    price : "cycle" or float
        See `exact`.
    """

    def __init__(self, pricer: ProbPricer | RoutingPricer, *, price: Price = "cycle") -> None:
        check_price(price)
        self.pricer = pricer
        self.price = price

    def start(self, terms: CostTerms, *, max_nodes: int | None = None) -> None:
        """Begin a cycle with these costs and node limit."""
        self._terms = terms
        self._max_nodes = max_nodes
        self._levels = -1
        self._best: SearchResult | None = None
        self._last = np.zeros(0, bool)
        self._decision: StopDecision | None = None
        self.pricer.start(terms.weight_s, None if terms.copies is None else terms.is_priced)

    def add_level(
        self, parents: NDArray[np.int32], path_probs: NDArray[np.float64], predicted: Any
    ) -> None:
        """Take the tree with one more level; the first call brings the root.

        Parameters
        ----------
        parents, path_probs : int32[N], float64[N]
            Of the whole tree so far; nodes of earlier levels must be unchanged.
        predicted : float32[n, L, E] or integer[n, L, K]
            Of the n new nodes only, for the pricer's `extend`.
        """
        self.pricer.extend(parents, path_probs, predicted)
        self._levels += 1
        self._best = None
        self._problem = SearchProblem(
            parents, path_probs, self.pricer.demand(), self._terms, self._levels, self._max_nodes
        )

    @property
    def problem(self) -> SearchProblem:
        """The tree so far as a search problem."""
        return self._problem

    def best(self) -> SearchResult:
        """Return the best selection of the tree so far.

        The search starts from the last level's selection, priced at the new depth.
        """
        if self._best is None:
            start = np.zeros(len(self._problem), bool)
            start[: len(self._last)] = self._last
            self._best = search_from(self._problem, start, self.price)
            self._last = self._best.mask
        return self._best

    def should_draft(
        self, growth: NDArray[np.float64], expandable: NDArray[np.bool_]
    ) -> StopDecision:
        """Decide whether another level can beat `best`; see `specfit.core.search.should_draft`."""
        self._decision = should_draft(self._problem, self.best(), growth, expandable)
        return self._decision

    @property
    def decision(self) -> StopDecision | None:
        """What `should_draft` last answered in this cycle; None before it was asked."""
        return self._decision
