"""The exact search as a policy: draft while it may pay, verify what pays most.

Before drafting, and after each level that is less likely than was hoped, the search asks whether
more levels could beat what is there; at the end it picks the subtree with the most expected
committed tokens per second. Both inputs are calibrated predictions: acceptance by depth and sibling
rank, experts as probabilities. What the running text shows of the misses corrects the price of
those that follow.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from specfit.core.cost import CostTerms
from specfit.core.policy import Cycle, Outcome, Policy, register_policy
from specfit.core.search import LevelSearch, ProbPricer, SearchResult
from specfit.core.selection import Prediction, Selection
from specfit.core.tree import DraftPlan, frontier
from specfit.policies._ranges import check_range
from specfit.policies.copy_price import room_of, share_of
from specfit.policies.correction import MissCorrection
from specfit.policies.layer_sample import spread_layers


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
        Part of the price of missing experts that is forgiven on nodes sure to be accepted, the root
        among them, since the text needs them in this cycle or the next; 0 to 1.
    salvage : float
        Part of a copy that is not lost even where its node is rejected, as later cycles find the
        expert resident; 0 to 1. It shrinks with the cache: to nothing where that has no room beyond
        the experts of one token.
    longest_pause : int
        After drafts of which nothing was worth verifying, drafting rests for 1, 2, 4, ... cycles,
        at most this many, before it is tried again.
    decision_s : float
        Seconds that this policy's own work after a level takes, charged like drafting.
    miss_memory : float
        Weight of the past in the correction of expected misses, a cycle; 1 turns it off.
    max_layers : int
        Layers at most whose experts are predicted and priced; spread evenly, each stands for its
        neighbours. Where compute hides copies, or a table prices them, all are.
    """

    depth: int = 5
    top_k: int = 2
    max_nodes: int = 64
    discount: float = 0.8
    salvage: float = 0.4
    longest_pause: int = 2
    decision_s: float = 2e-4
    miss_memory: float = 0.95
    max_layers: int = 8
    _pricer: ProbPricer = field(init=False, repr=False, compare=False)
    _search: LevelSearch = field(init=False, repr=False, compare=False)
    _hopes: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    _growth: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    _pause: int = field(default=0, init=False, repr=False, compare=False)
    _wait: int = field(default=0, init=False, repr=False, compare=False)
    _misses: MissCorrection = field(init=False, repr=False, compare=False)
    _layers: NDArray[np.bool_] | None = field(default=None, init=False, repr=False, compare=False)
    _stands_for: float = field(default=1.0, init=False, repr=False, compare=False)
    _lost: float = field(default=1.0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_range(self, "top_k max_nodes max_layers", 1)
        check_range(self, "depth longest_pause decision_s", 0)
        check_range(self, "discount salvage miss_memory", 0, 1)
        self._pricer = ProbPricer(self.discount)
        self._search = LevelSearch(self._pricer)
        self.reset()

    @property
    def search(self) -> LevelSearch:
        """The search of the cycle in hand, for those who explain it."""
        return self._search

    @property
    def lost(self) -> float:
        """The part of a copy that is charged in the cycle in hand: what is not salvaged."""
        return self._lost

    def plan(self, cycle: Cycle) -> DraftPlan:
        """Draft if some number of levels can beat a plain step, and no pause is on."""
        terms = self._charged(cycle)
        self._search.start(terms, max_nodes=self.max_nodes, layers=self._layers)
        self._hopes = np.zeros(0)
        if self._wait > 0:
            self._wait -= 1
            return DraftPlan.plain()
        depth = min(self.depth, cycle.max_depth)
        chances = [cycle.acceptance.continuation(d, self.top_k) for d in range(1, depth + 1)]
        self._growth = np.array(chances, np.float64)
        if depth < 1 or not self._can_grow(cycle, depth):
            return DraftPlan.plain()
        return DraftPlan(depth, self.top_k, self.max_nodes)

    def after_level(self, cycle: Cycle) -> bool:
        """Draft on while some number of further levels can beat the best so far.

        As long as the newest level is as likely as was hoped when levels beyond it were found to
        pay, nothing is searched: the answer stands.
        """
        ahead = cycle.levels - self._search.levels - 1
        hopes_left = self._hopes[ahead:]
        if len(hopes_left) > 1:
            newest = cycle.path_probs[cycle.tree.depths == cycle.levels]
            if newest.max() >= hopes_left[0]:
                return True
        return self._can_grow(cycle, cycle.plan.depth - cycle.levels)

    def select(self, cycle: Cycle) -> Selection:
        """Select what the exact search finds."""
        if self._pricer.num_nodes < len(cycle.tree):
            self._search.add_level(
                cycle.tree.parents,
                cycle.path_probs,
                self._new_probs(cycle),
                num_new=cycle.levels - self._search.levels,
            )
        best = self._search.best()
        return Selection(cycle.tree, best.mask, self._predict(best, cycle))

    def observe(self, outcome: Outcome) -> None:
        """Correct the misses; rest from drafting when a draft brought nothing worth verifying."""
        self._misses.observe(outcome)
        if outcome.cycle.levels == 0:
            return
        if len(outcome.selection) > 1:
            self._pause = 0
        else:
            self._pause = min(max(1, 2 * self._pause), self.longest_pause)
        self._wait = self._pause

    def reset(self) -> None:
        """Forget the pauses and the correction of earlier requests."""
        self._pause = self._wait = 0
        self._misses = MissCorrection(self.miss_memory)

    def _charged(self, cycle: Cycle) -> CostTerms:
        """Return the cycle's terms as they are charged, with the price of deciding.

        Misses cost what the text has shown, less what is salvaged.
        """
        terms, resident = cycle.terms, cycle.residency.mask
        self._lost = 1.0 - self.salvage * room_of(cycle.residency, cycle.geometry)
        scale = self._misses.scale * self._lost
        draft_s = terms.draft_s + self.decision_s * np.arange(len(terms.draft_s))
        self._layers, self._stands_for = None, 1.0
        if terms.copies is not None:
            self._pricer.discount = self.discount
            return replace(terms.with_misses_scaled(cycle.residency, scale), draft_s=draft_s)
        rows: NDArray[np.bool_] | slice = slice(None)
        if len(resident) > self.max_layers:
            rows = self._layers = spread_layers(len(resident), self.max_layers)
            self._stands_for = len(resident) / self.max_layers
        weight_s, is_missing = terms.weight_s[rows], ~resident[rows]
        self._pricer.discount = self.discount * share_of(weight_s, is_missing)
        charged_s = np.zeros_like(terms.weight_s)
        charged_s[rows] = self._stands_for * weight_s * np.where(is_missing, scale, 1.0)
        return replace(terms, draft_s=draft_s, weight_s=charged_s)

    def _can_grow(self, cycle: Cycle, levels_left: int) -> bool:
        """Search the tree so far, and keep what is hoped of the levels that are found to pay."""
        growth = self._growth[cycle.levels : cycle.levels + levels_left]
        expandable = np.zeros(len(cycle.tree), bool)
        expandable[frontier(cycle.tree, self.top_k) if cycle.levels else 0] = True
        ahead = self._search.advance(
            cycle.tree.parents,
            cycle.path_probs,
            self._new_probs(cycle),
            growth,
            expandable,
            num_new=cycle.levels - self._search.levels,
        )
        self._hopes = cycle.path_probs[expandable].max() * np.cumprod(growth[:ahead])
        return ahead > 0

    def _new_probs(self, cycle: Cycle) -> NDArray[np.float32] | None:
        """Return the routing probabilities of the nodes that the search has not seen."""
        if self._pricer.is_free:
            return None
        return cycle.path_needs(self._pricer.num_nodes, self._layers)

    def _predict(self, best: SearchResult, cycle: Cycle) -> Prediction:
        """Return what to expect of the selection, at full price: nothing is forgiven this cycle."""
        problem, terms = self._search.problem, self._search.problem.terms
        misses, missing_s, resident_s = problem.demand.expected_use(
            best.mask, ~cycle.residency.mask
        )
        if terms.copies is None:
            pass_s = float(terms.tau_s[best.num_nodes]) + resident_s + missing_s / self._lost
        else:
            full = terms.with_misses_scaled(cycle.residency, 1.0 / self._lost)
            pass_s = full.pass_s(best.num_nodes, problem.demand.activation(best.mask))
        misses *= self._misses.scale * self._stands_for
        return Prediction(best.expected_committed, misses, problem.draft_s + pass_s)
