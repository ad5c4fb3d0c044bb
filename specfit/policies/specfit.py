"""The exact search as a policy: draft while it may pay, verify what pays most.

Before drafting and after every level the search asks whether more levels could beat what is there;
at the end it picks the subtree with the most expected committed tokens per second. Both inputs are
calibrated predictions: acceptance by depth and sibling rank, experts as probabilities. What the
running text shows of their error corrects them for the cycles that follow.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from specfit.core.policy import Cycle, Outcome, Policy, register_policy
from specfit.core.search import LevelSearch, ProbPricer, SearchResult
from specfit.core.selection import Prediction, Selection
from specfit.core.tree import DraftPlan, frontier, path_products
from specfit.policies.correction import AcceptanceCorrection, MissCorrection


@register_policy("specfit")
@dataclass
class SpecFit(Policy):
    """Verify the subtree of maximal predicted throughput; draft only while that can rise.

    Parameters
    ----------
    depth : int
        Levels to draft at most.
    top_k : int
        Children of an expanded node and expanded nodes of a level.
    max_nodes : int
        Verified nodes at most, the root included.
    discount : float
        Part of an expert's price that is forgiven on nodes sure to be accepted, since the next
        cycle needs it anyway; 0 to 1.
    longest_pause : int
        After drafts of which nothing was worth verifying, drafting rests for 1, 2, 4, ... cycles,
        at most this many, before it is tried again.
    acceptance_step : float
        How far one observation moves the correction of acceptance, in log-odds; 0 turns it off.
    miss_memory : float
        Weight of the past in the correction of expected misses, a cycle; 1 turns it off.
    """

    depth: int = 5
    top_k: int = 2
    max_nodes: int = 64
    discount: float = 0.5
    longest_pause: int = 16
    acceptance_step: float = 0.3
    miss_memory: float = 0.95
    _pricer: ProbPricer = field(init=False, repr=False, compare=False)
    _search: LevelSearch = field(init=False, repr=False, compare=False)
    _searched: int = field(default=0, init=False, repr=False, compare=False)
    _growth: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    _pause: int = field(default=0, init=False, repr=False, compare=False)
    _wait: int = field(default=0, init=False, repr=False, compare=False)
    _acceptance: AcceptanceCorrection = field(init=False, repr=False, compare=False)
    _misses: MissCorrection = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self._pricer = ProbPricer(self.discount)
        self._search = LevelSearch(self._pricer)
        self.reset()

    @property
    def search(self) -> LevelSearch:
        """The search of the cycle in hand, for those who explain it."""
        return self._search

    def plan(self, cycle: Cycle) -> DraftPlan:
        """Draft if some number of levels can beat a plain step, and no pause is on."""
        terms = self._misses.correct(cycle.terms, cycle.residency)
        self._search.start(terms, max_nodes=self.max_nodes)
        self._searched = 0
        steps = range(1, self.depth + 1)
        growth = np.array([cycle.acceptance.continuation(d, self.top_k) for d in steps])
        self._growth = self._acceptance.shifted(growth)
        if self._wait > 0:
            self._wait -= 1
            return DraftPlan.plain()
        depth = min(self.depth, cycle.max_depth)
        if depth < 1 or not self._can_grow(cycle, depth):
            return DraftPlan.plain()
        return DraftPlan(depth, self.top_k, self.max_nodes)

    def after_level(self, cycle: Cycle) -> bool:
        """Draft on while some number of further levels can beat the best so far."""
        return self._can_grow(cycle, cycle.plan.depth - cycle.levels)

    def select(self, cycle: Cycle) -> Selection:
        """Select what the exact search finds."""
        self._add(cycle)
        best = self._search.best()
        return Selection(cycle.tree, best.mask, self._predict(best, cycle))

    def observe(self, outcome: Outcome) -> None:
        """Correct both inputs; rest from drafting when a draft brought nothing worth verifying."""
        self._misses.observe(outcome)
        if outcome.cycle.levels == 0:
            return
        self._acceptance.observe(outcome)
        if len(outcome.selection) > 1:
            self._pause = 0
        else:
            self._pause = min(max(1, 2 * self._pause), self.longest_pause)
        self._wait = self._pause

    def reset(self) -> None:
        """Forget the pauses and corrections of earlier requests."""
        self._pause = self._wait = 0
        self._acceptance = AcceptanceCorrection(self.acceptance_step)
        self._misses = MissCorrection(self.miss_memory)

    def _add(self, cycle: Cycle) -> None:
        """Price the nodes that are new since the last search of this cycle."""
        known, self._searched = self._searched, len(cycle.tree)
        if known == self._searched:
            return
        is_free = self._pricer.is_free
        probs = None if is_free else cycle.expert_probs.probs[known:]
        accept_probs = self._acceptance.correct(cycle.tree, cycle.accept_probs)
        path_probs = path_products(cycle.tree.parents, accept_probs)
        self._search.add_level(cycle.tree.parents, path_probs, probs)

    def _can_grow(self, cycle: Cycle, levels_left: int) -> bool:
        self._add(cycle)
        growth = self._growth[cycle.levels : cycle.levels + levels_left]
        expandable = np.zeros(len(cycle.tree), bool)
        expandable[frontier(cycle.tree, self.top_k)] = True
        return self._search.should_draft(growth, expandable).draft

    def _predict(self, best: SearchResult, cycle: Cycle) -> Prediction:
        """Return what to expect of the selection, at full price: nothing is forgiven this cycle."""
        problem = self._search.problem
        terms = problem.terms
        cycle_s = float(problem.draft_s + terms.tau_s[best.num_nodes])
        if self._pricer.is_free:
            return Prediction(best.expected_committed, 0.0, cycle_s)
        activation = problem.demand.activation(best.mask)
        misses = self._misses.scale * float(activation[~cycle.residency.mask].sum())
        expert_s = float((terms.weight_s * activation).sum())
        return Prediction(best.expected_committed, misses, cycle_s + expert_s)
