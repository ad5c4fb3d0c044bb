"""The references: the best of each cycle, and nothing for live decoding."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from specfit.core.backend import Backend, Foresight, Request
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeLoop
from specfit.core.errors import BackendError, InvalidInputError
from specfit.core.experts import ExpertCoverage
from specfit.core.policy import Cycle
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan, DraftTree
from specfit.policies import Chain, ReferenceExperts, ReferenceTruth
from specfit.testing.examples import DrafterAcceptance, UniformPredictor, example_profile
from specfit.testing.toy import ToyBackend, toy_backend
from specfit.testing.worlds import run_toy


def best_rate(cycle: Cycle, ahead: Foresight, probs: np.ndarray) -> float:
    """Return the most tokens a second of any selection at any depth, by trying all."""
    tree, best = ahead.tree, 0.0
    coverage = ExpertCoverage(ahead.routing, cycle.geometry.num_experts)
    for rest in product((False, True), repeat=len(tree) - 1):
        mask = np.array((True, *rest))
        if (mask[1:] & ~mask[tree.parents[1:]]).any():
            continue
        levels = int(tree.depths[mask].max())
        needed = coverage.union(mask).astype(np.float64)
        seconds = cycle.terms.draft_s[levels] + cycle.terms.pass_s(int(mask.sum()), needed)
        best = max(best, float(probs[mask].sum()) / seconds)
    return best


class Checked(ReferenceExperts):
    """Holds each plan and selection against enumeration."""

    num_checked = 0

    def plan(self, cycle: Cycle) -> DraftPlan:
        plan = super().plan(cycle)
        self.ahead = cycle.foresee(
            DraftPlan(min(self.depth, cycle.max_depth), self.top_k, self.max_nodes)
        )
        self.expected = best_rate(cycle, self.ahead, self._path_probs(cycle, self.ahead))
        return plan

    def select(self, cycle: Cycle) -> Selection:
        selection = super().select(cycle)
        n = len(cycle.tree)
        coverage = ExpertCoverage(self.ahead.routing[:n], cycle.geometry.num_experts)
        needed = coverage.union(selection.mask).astype(np.float64)
        seconds = cycle.terms.draft_s[cycle.levels] + cycle.terms.pass_s(len(selection), needed)
        tokens = selection.expected_committed(self._path_probs(cycle, self.ahead)[:n])
        assert tokens / seconds == pytest.approx(self.expected)
        self.num_checked += 1
        return selection


class CheckedTruth(ReferenceTruth, Checked):
    """The same with the true text."""


@pytest.mark.parametrize("policy", [Checked(depth=2), CheckedTruth(depth=2)])
def test_it_is_the_best_of_all_selections_at_all_depths(policy: Checked) -> None:
    run_toy(policy, toy_backend("lru:50%"), Request((3, 1, 4), 12))
    assert policy.num_checked >= 5


def test_with_the_truth_nothing_is_verified_in_vain() -> None:
    result = run_toy(ReferenceTruth(), toy_backend("lru:100%"), Request((3, 1, 4), 30))
    assert all(record.num_verified == record.num_committed for record in result.cycles)
    assert len(result.cycles) < 29


class Live(ToyBackend):
    """A backend that knows nothing beforehand, as live ones do."""

    can_foresee = False


def test_a_reference_is_refused_by_a_live_backend() -> None:
    toy = toy_backend()
    live = Live(toy.model, toy.cache, toy.profile)
    inputs = ProfileCost(example_profile()), UniformPredictor(live.geometry)
    with pytest.raises(InvalidInputError, match="ReferenceTruth is a reference that must"):
        DecodeLoop(live, ReferenceTruth(), *inputs, DrafterAcceptance())


class Peeking(Chain):
    """Looks ahead without saying that it is a reference."""

    def plan(self, cycle: Cycle) -> DraftPlan:
        cycle.foresee(DraftPlan(2, 1, 3))
        return super().plan(cycle)


def test_other_policies_cannot_look_ahead() -> None:
    with pytest.raises(InvalidInputError, match="must not look ahead"):
        run_toy(Peeking(), toy_backend(), Request((3, 1, 4), 12))


def test_a_backend_knows_nothing_beforehand_unless_it_says_so() -> None:
    with pytest.raises(BackendError, match="Replay a trace"):
        Backend.foresee(toy_backend(), DraftPlan(1, 1, 2), DraftTree.root(0))
