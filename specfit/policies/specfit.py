"""The exact search as a policy: draft while it may pay, verify what pays most.

Before drafting, and after each level that is less likely than was hoped, the search asks whether
more levels could beat what is there; at the end it picks the subtree with the most expected
committed tokens per second. Both inputs are calibrated predictions: acceptance by depth and sibling
rank, experts as probabilities. What the running text shows of the misses corrects the price of
those that follow.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from specfit.core.cost import CostTerms
from specfit.core.policy import Cycle, Outcome, Policy, register_policy
from specfit.core.search import LevelSearch, ProbPricer, SearchResult
from specfit.core.selection import Prediction, Selection
from specfit.core.tree import DraftPlan, frontier
from specfit.policies._ranges import check_range
from specfit.policies.copy_price import charged_weights, room_of
from specfit.policies.correction import Displacement, MissCorrection
from specfit.policies.layer_sample import spread_layers

LEAST_LOST = 1e-6
"""Least part of a copy that is charged: not 0, so that full seconds come back by division."""

_ROOT = np.zeros(1, np.intp)
_NOTHING = np.zeros(0, bool)
_NOTHING_S = np.zeros(0)


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
    spare_salvage : float
        The same for a copy that displaces nothing, as the cache is not full; 0 to 1.
    longest_pause : int
        After drafts of which nothing was worth verifying, drafting rests for 1, 2, 4, ... cycles,
        at most this many, before it is tried again.
    decision_s : float
        Seconds that this policy's own work after a level takes, charged like drafting.
    miss_memory : float
        Weight of the past, a cycle, in the correction of expected misses, which 1 turns off, and in
        the share of copies that displace an expert.
    max_layers : int
        Layers at most whose experts are predicted and priced; spread evenly, each stands for its
        neighbours. Where compute hides copies, or a table prices them, all are.
    """

    depth: int = 8
    top_k: int = 2
    max_nodes: int = 64
    discount: float = 0.8
    salvage: float = 0.4
    spare_salvage: float = 0.9
    longest_pause: int = 2
    decision_s: float = 2e-4
    miss_memory: float = 0.95
    max_layers: int = 4
    _pricer: ProbPricer = field(init=False, repr=False, compare=False)
    _search: LevelSearch = field(init=False, repr=False, compare=False)
    _growth: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    _hoped: float = field(default=0.0, init=False, repr=False, compare=False)
    _levels_hoped: int = field(default=0, init=False, repr=False, compare=False)
    _pause: int = field(default=0, init=False, repr=False, compare=False)
    _wait: int = field(default=0, init=False, repr=False, compare=False)
    _rests: bool = field(default=False, init=False, repr=False, compare=False)
    _misses: MissCorrection = field(init=False, repr=False, compare=False)
    _displacement: Displacement = field(init=False, repr=False, compare=False)
    _layers: NDArray[np.bool_] | None = field(default=None, init=False, repr=False, compare=False)
    _stands_for: float = field(default=1.0, init=False, repr=False, compare=False)
    _lost: float = field(default=1.0, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_range(self, "top_k max_nodes max_layers", 1)
        check_range(self, "depth longest_pause decision_s", 0)
        check_range(self, "discount salvage spare_salvage miss_memory", 0, 1)
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
        self._rests = self._wait > 0
        if self._rests:
            self._wait -= 1
            self._search.forget()
            return DraftPlan.plain()
        terms = self._charged(cycle)
        self._search.start(terms, max_nodes=self.max_nodes, layers=self._layers)
        depth = min(self.depth, cycle.max_depth)
        # The best child's alone: to have its siblings' chances too, all would have to be verified.
        chances = [cycle.acceptance.continuation(d, 1) for d in range(1, depth + 1)]
        self._growth = np.array(chances, np.float64)
        if depth < 1 or not self._can_grow(cycle, depth):
            return DraftPlan.plain()
        return DraftPlan(depth, self.top_k, self.max_nodes)

    def after_level(self, cycle: Cycle) -> bool:
        """Draft on while some number of further levels can beat the best so far.

        As long as the newest level is as likely as was hoped when levels beyond it were found to
        pay, nothing is searched: the answer stands.
        """
        searched = self._search.levels
        if cycle.levels < searched + self._levels_hoped:
            hoped = self._hoped * math.prod(self._growth[searched : cycle.levels].tolist())
            first = int(np.searchsorted(cycle.tree.depths, cycle.levels))
            if cycle.path_probs[first:].max() >= hoped:
                return True
        return self._can_grow(cycle, cycle.plan.depth - cycle.levels)

    def select(self, cycle: Cycle) -> Selection:
        """Select what the exact search finds; in a cycle that rests nothing is looked at."""
        if self._rests:
            return Selection.root_only(cycle.tree)
        if self._pricer.num_nodes < len(cycle.tree):
            self._advance(cycle, _NOTHING_S, _NOTHING)
        best = self._search.best()
        return Selection(cycle.tree, best.mask, self._predict(best, cycle))

    def observe(self, outcome: Outcome) -> None:
        """Correct the misses; rest from drafting when a draft brought nothing worth verifying."""
        self._misses.observe(outcome)
        self._displacement.observe(outcome.verification)
        if outcome.cycle.levels == 0:
            return
        if len(outcome.selection) > 1:
            self._pause = 0
        else:
            self._pause = min(max(1, 2 * self._pause), self.longest_pause)
        self._wait = self._pause

    def reset(self) -> None:
        """Forget the pauses and what earlier requests showed of misses."""
        self._pause = self._wait = 0
        self._rests = False
        self._misses = MissCorrection(self.miss_memory)
        self._displacement = Displacement(self.miss_memory)

    def _charged(self, cycle: Cycle) -> CostTerms:
        """Return the cycle's terms as they are charged, with the price of deciding.

        Misses cost what the text has shown, less what is salvaged.
        """
        terms, num_layers = cycle.terms, cycle.geometry.num_layers
        found_again = self.salvage * room_of(cycle.residency, cycle.geometry)
        self._displacement.look(cycle.residency)
        displaced = self._displacement.share
        salvaged = displaced * found_again + (1.0 - displaced) * self.spare_salvage
        self._lost = max(1.0 - salvaged, LEAST_LOST)
        scale = self._misses.scale * self._lost
        draft_s = terms.draft_s + self.decision_s * np.arange(len(terms.draft_s))
        self._layers, self._stands_for = None, 1.0
        if terms.copies is not None:
            self._pricer.discount = self.discount
            return replace(terms.with_misses_scaled(cycle.residency, scale), draft_s=draft_s)
        layers = spread_layers(num_layers, min(num_layers, self.max_layers))
        if num_layers > self.max_layers:
            self._layers, self._stands_for = layers, num_layers / self.max_layers
        charged_s, share = charged_weights(
            terms.weight_s, cycle.residency, scale, layers, self._stands_for
        )
        self._pricer.discount = self.discount * share
        return CostTerms(draft_s, terms.tau_s, charged_s)

    def _can_grow(self, cycle: Cycle, levels_left: int) -> bool:
        """Search the tree so far, and keep what is hoped of the levels that are found to pay."""
        growth = self._growth[cycle.levels : cycle.levels + levels_left]
        expanded = frontier(cycle.tree, self.top_k) if cycle.levels else _ROOT
        expandable = np.zeros(len(cycle.tree), bool)
        expandable[expanded] = True
        self._levels_hoped = self._advance(cycle, growth, expandable)
        self._hoped = max(cycle.path_probs[expanded].tolist())
        return self._levels_hoped > 0

    def _advance(
        self, cycle: Cycle, growth: NDArray[np.float64], expandable: NDArray[np.bool_]
    ) -> int:
        """Give the search what is new of the tree; return how many further levels pay."""
        probs: NDArray[np.float32] | None = None
        if not self._pricer.is_free:
            probs = cycle.path_needs(self._pricer.num_nodes, self._layers)
        num_new = cycle.levels - self._search.levels
        return self._search.advance(
            cycle.tree.parents, cycle.path_probs, probs, growth, expandable, num_new=num_new
        )

    def _predict(self, best: SearchResult, cycle: Cycle) -> Prediction:
        """Return what to expect of the selection, at full price: nothing is forgiven this cycle."""
        terms, demand = self._search.terms, self._pricer.demand()
        misses, missing_s, resident_s = demand.expected_use(best.mask, ~cycle.residency.mask)
        if terms.copies is None:
            pass_s = float(terms.tau_s[best.num_nodes]) + resident_s + missing_s / self._lost
        else:
            full = terms.with_misses_scaled(cycle.residency, 1.0 / self._lost)
            pass_s = full.pass_s(best.num_nodes, demand.activation(best.mask))
        misses *= self._misses.scale * self._stands_for
        draft_s = float(terms.draft_s[self._search.levels])
        return Prediction(best.expected_committed, misses, draft_s + pass_s)
