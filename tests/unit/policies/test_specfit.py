"""The specfit policy on cycles one can work out by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specfit.core.backend import Request
from specfit.core.copies import Overlap
from specfit.core.cost import ProfileCost
from specfit.core.experts import ExpertProbs, Residency
from specfit.core.policy import Cycle
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan, DraftTree
from specfit.policies import SpecFit
from specfit.testing.examples import (
    DrafterAcceptance,
    example_geometry,
    example_profile,
    make_cycle,
)
from specfit.testing.toy import toy_backend
from specfit.testing.worlds import run_toy

GEOMETRY = example_geometry()  # 4 layers, 16 experts, top-2; a copy takes 1 ms, a pass 10 ms
RESIDENT, MISSING = (2, 3), (4, 5)


def cycle_of(first: tuple[int, int], second: tuple[int, int], overlap: Overlap = "none") -> Cycle:
    """Two equally probable children of the root, routed to these experts in every layer."""
    tree = DraftTree.from_arrays(np.array([-1, 0, 0], np.int32), np.array([1.0, 0.45, 0.45]))
    probs = np.zeros((3, GEOMETRY.num_layers, GEOMETRY.num_experts), np.float32)
    for node, experts in enumerate(((0, 1), first, second)):
        probs[node][:, list(experts)] = 1.0
    mask = np.zeros((GEOMETRY.num_layers, GEOMETRY.num_experts), bool)
    mask[:, :4] = True
    cost = ProfileCost(replace(example_profile(), overlap=overlap))
    return make_cycle(
        tree, geometry=GEOMETRY, residency=Residency(mask), expert_probs=probs, cost=cost
    )


def select(policy: SpecFit, cycle: Cycle) -> Selection:
    """Let the policy plan at the root, then select of the whole tree."""
    root = DraftTree.root(int(cycle.tree.tokens[0]))
    policy.plan(replace(cycle, tree=root, levels=0, plan=DraftPlan.plain()))
    return policy.select(cycle)


def test_the_child_whose_experts_are_resident_is_chosen() -> None:
    """It adds 0.45 tokens for 1 ms; its sibling for 9 ms, when a plain token takes 11 ms."""
    assert select(SpecFit(), cycle_of(RESIDENT, MISSING)).nodes.tolist() == [0, 1]


def test_swapping_the_experts_of_two_siblings_swaps_the_choice() -> None:
    assert select(SpecFit(), cycle_of(MISSING, RESIDENT)).nodes.tolist() == [0, 2]


def test_siblings_that_share_missing_experts_pay_for_them_once() -> None:
    """Alone either would cost 9 ms for 0.45 tokens; together 10 ms for 0.9."""
    assert select(SpecFit(discount=0.0), cycle_of(MISSING, MISSING)).nodes.tolist() == [0, 1, 2]
    assert select(SpecFit(discount=0.0), cycle_of(MISSING, (6, 7))).nodes.tolist() == [0]


def test_what_a_path_does_not_need_is_charged_by_its_novelty() -> None:
    """A child of the sure root that may need another expert, 0.5 in all layers, is expected to copy
    what is left of it: 4 x 0.5 x (0.5 + novelty x 0.5)."""
    tree = DraftTree.from_arrays(np.array([-1, 0], np.int32), np.array([1.0, 0.95]))
    probs = np.zeros((2, GEOMETRY.num_layers, GEOMETRY.num_experts), np.float32)
    probs[0, :, :2] = 1.0
    probs[1, :, 4:8] = 0.5
    mask = np.zeros((GEOMETRY.num_layers, GEOMETRY.num_experts), bool)
    mask[:, :7] = True
    cycle = make_cycle(tree, geometry=GEOMETRY, residency=Residency(mask), expert_probs=probs)
    for novelty, misses in ((1.0, 2.0), (0.6, 1.6), (0.0, 1.0)):
        believed = replace(
            cycle,
            _predict=lambda tree, layers, n=novelty: ExpertProbs(probs[: len(tree)], "example", n),
        )
        selection = select(SpecFit(), believed)
        assert selection.nodes.tolist() == [0, 1]
        assert selection.prediction is not None
        assert selection.prediction.misses == pytest.approx(misses)


def test_the_prediction_is_what_the_terms_say() -> None:
    cycle = cycle_of(RESIDENT, MISSING)
    prediction = select(SpecFit(decision_s=1e-4), cycle).prediction
    assert prediction is not None
    assert prediction.committed == pytest.approx(1.45)
    assert prediction.misses == 0.0
    needed = np.zeros((4, 16))
    needed[:, :4] = 1.0
    expected_s = cycle.terms.draft_s[1] + 1e-4 + cycle.terms.pass_s(2, needed)
    assert prediction.cycle_s == pytest.approx(expected_s)


def test_the_prediction_counts_the_copies_that_compute_does_not_hide() -> None:
    """Of 8 ms of copies, a layer's two hide 0.4 ms behind its four experts."""
    cycle = cycle_of(MISSING, MISSING, "resident")
    selection = select(SpecFit(decision_s=1e-4, discount=0.0), cycle)
    assert selection.nodes.tolist() == [0, 1, 2]
    prediction = selection.prediction
    assert prediction is not None
    assert prediction.misses == pytest.approx(8.0)
    needed = np.zeros((4, 16))
    needed[:, [0, 1, 4, 5]] = 1.0
    expected_s = cycle.terms.draft_s[1] + 1e-4 + cycle.terms.pass_s(3, needed)
    assert prediction.cycle_s == pytest.approx(expected_s)


class DraftsInVain(SpecFit):
    """Drafts one level whenever it does not rest, and verifies the root alone."""

    def _can_grow(self, cycle: Cycle, levels_left: int) -> bool:
        return True

    def after_level(self, cycle: Cycle) -> bool:
        return False

    def select(self, cycle: Cycle) -> Selection:
        return Selection.root_only(cycle.tree)


def drafted_cycles(policy: SpecFit, num_tokens: int) -> list[int]:
    request = Request((3, 1, 4), num_tokens)
    cycles = run_toy(policy, toy_backend(), request).cycles[:-1]  # the last has no room to draft
    return [i for i, record in enumerate(cycles) if record.outcome.cycle.levels]


def test_drafts_in_vain_are_tried_again_at_growing_distances() -> None:
    """It rests 1, 2, 4, 4, ... cycles."""
    assert drafted_cycles(DraftsInVain(longest_pause=4), 24) == [0, 2, 5, 10, 15, 20]


def test_a_new_request_starts_without_a_pause() -> None:
    policy = DraftsInVain()
    first = drafted_cycles(policy, 24)
    assert drafted_cycles(policy, 24) == first
    assert first[0] == 0


class Counts(SpecFit):
    """Counts the searches that decide on drafting."""

    asked = 0

    def _can_grow(self, cycle: Cycle, levels_left: int) -> bool:
        self.asked += 1
        return super()._can_grow(cycle, levels_left)


@pytest.mark.parametrize(("second", "asked"), [(0.9, 1), (0.2, 2)])
def test_nothing_is_searched_while_the_draft_is_as_likely_as_was_hoped(
    second: float, asked: int
) -> None:
    """All experts are resident, and likely drafts pay to the end."""
    policy = Counts(depth=3, top_k=1)
    resident = Residency(np.ones((GEOMETRY.num_layers, GEOMETRY.num_experts), bool))
    chain = DraftTree.from_arrays(np.array([-1, 0, 1], np.int32), np.array([1.0, 0.9, second]))
    cycle = make_cycle(
        chain, geometry=GEOMETRY, residency=resident, acceptance=Hopeful(), max_depth=8
    )
    root = replace(cycle, tree=chain.first(1), levels=0, plan=DraftPlan.plain())
    plan = policy.plan(root)
    assert policy.asked == 1
    assert plan.depth == 3
    first = replace(cycle, tree=chain.first(2), levels=1, plan=plan)
    assert policy.after_level(first)
    assert policy.asked == 1
    policy.after_level(replace(cycle, levels=2, plan=plan))
    assert policy.asked == asked
    assert policy.select(replace(cycle, levels=2, plan=plan)).nodes.tolist()[:2] == [0, 1]


class Hopeful(DrafterAcceptance):
    """Believes the drafter, and that the next level is right nine times of ten."""

    def continuation(self, depth: int, top_k: int) -> float:
        return 0.9


def test_a_cycle_that_rests_looks_at_nothing() -> None:
    """Neither costs nor experts nor acceptance are asked for, so that resting is free."""
    policy, cycle = SpecFit(), make_cycle(DraftTree.root(0))
    policy._wait = 1

    def refuse(*_: object) -> None:
        raise AssertionError("nothing is looked at")

    blind = replace(cycle, acceptance=None, _terms=refuse, _predict=refuse)  # type: ignore[arg-type]
    plan = policy.plan(blind)
    selection = policy.select(replace(blind, plan=plan))
    assert plan.is_plain
    assert (len(selection), selection.prediction) == (1, None)
    assert policy.search.levels == -1
