"""Policies that draft chains, on cycles worked by hand from the papers' formulas."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from specfit.core.tree import DraftPlan
from specfit.policies import AdaEDL, Cascade, Chain, DraftExpert, MoESpeQ, Svip
from tests.unit.policies.cycles import after, chain_of, cycle_of, outcome_of, selected, tree_of


def test_chain_verifies_all_that_it_drafts() -> None:
    cycle = cycle_of(chain_of(0.9, 0.1, 0.1))
    assert Chain(3).plan(cycle) == DraftPlan(3, 1, 4)
    assert selected(Chain(3), cycle) == [0, 1, 2, 3]
    assert Chain(0).plan(cycle).is_plain


def test_svip_stops_after_a_token_of_high_entropy() -> None:
    """sqrt(0.15 * 0.5) = 0.27 passes 0.3; sqrt(0.15 * 0.7) = 0.32 does not. The token stays."""
    cycle = cycle_of(tree_of((-1, 0, 1), (1, 0.9, 0.9), (0, 0.5, 0.7)))
    assert Svip().after_level(after(cycle, 2))
    assert not Svip().after_level(cycle)
    assert selected(Svip(), cycle) == [0, 1, 2]


def test_adaedl_stops_by_its_bound_on_acceptance() -> None:
    """1 - sqrt(0.2 * 1.2) = 0.51 passes 0.5; 1 - sqrt(0.2 * 2) = 0.37 does not."""
    cycle = cycle_of(tree_of((-1, 0, 1), (1, 0.9, 0.9), (0, 1.2, 2)))
    assert AdaEDL().after_level(after(cycle, 2))
    assert not AdaEDL().after_level(cycle)


def test_adaedl_raises_its_threshold_when_too_little_is_accepted() -> None:
    """1 of 4 accepted: the rate falls from 0.9 to 0.575, the threshold moves by a tenth of 0.01."""
    policy = AdaEDL()
    cycle = cycle_of(chain_of(0.9, 0.9, 0.9, 0.9), plan=DraftPlan(16, 1, 17))
    policy.observe(outcome_of(cycle, 1))
    assert policy._rate == pytest.approx(0.575)
    assert policy._threshold == pytest.approx(0.501)
    for expected in (0.502, 0.503, 0.502):  # rates 0.788, 0.894, 0.947
        policy.observe(outcome_of(cycle, 4))
        assert policy._threshold == pytest.approx(expected)


def test_adaedl_does_not_lower_its_threshold_when_the_draft_was_cut() -> None:
    policy = AdaEDL(target_rate=0.5)
    policy.observe(outcome_of(cycle_of(chain_of(0.9, 0.9), plan=DraftPlan(2, 1, 3)), 2))
    assert policy._threshold == 0.5


def test_draftexpert_stops_before_an_unsure_token_with_many_missing_experts() -> None:
    """Each token needs one new expert in each of 4 layers; token 2 has probability 0.4."""
    cycle = cycle_of(chain_of(0.9, 0.4, 0.9))
    strict, loose = DraftExpert(max_missing=3), DraftExpert(max_missing=4)
    assert strict.after_level(after(cycle, 2))
    assert not strict.after_level(after(cycle, 3))
    assert selected(strict, cycle) == [0, 1]
    assert selected(loose, cycle) == [0, 1, 2, 3]
    assert selected(DraftExpert(max_missing=3, min_prob=0.3), cycle) == [0, 1, 2, 3]
    assert selected(strict, cycle_of(chain_of(0.9, 0.4, 0.9), resident=[3])) == [0, 1, 2, 3]


def test_moe_speq_takes_the_length_of_the_best_ratio() -> None:
    """At p = 0.5: 0.5 / 24.6 ms, 0.75 / 29.7 ms, 0.875 / 34.8 ms: two tokens."""
    cycle = cycle_of(chain_of(*[0.9] * 7))
    assert selected(MoESpeQ(first_prob=0.5), cycle) == [0, 1, 2]
    assert selected(MoESpeQ(first_prob=0.5, min_depth=3), cycle) == [0, 1, 2, 3]
    # At p = 0.8: .0325, .0485, .0561, .0592, .0598, .0589 a millisecond: five tokens.
    assert selected(MoESpeQ(first_prob=0.8), cycle) == [0, 1, 2, 3, 4, 5]


def test_moe_speq_drafts_on_while_the_ratio_rises() -> None:
    cycle = cycle_of(chain_of(*[0.9] * 7))
    going = [MoESpeQ(first_prob=0.5).after_level(after(cycle, n)) for n in (2, 3, 4)]
    assert going == [True, True, False]


def test_moe_speq_learns_acceptance_by_place() -> None:
    policy = MoESpeQ(first_prob=0.5)
    policy.observe(outcome_of(cycle_of(chain_of(0.9, 0.9, 0.9)), 1))
    assert policy._probs[:3].tolist() == pytest.approx([0.55, 0.45, 0.5])


def lengths(policy: Cascade, utility: Callable[[int], float], num_cycles: int) -> list[int]:
    """Return the lengths of a run in which length K has this utility: K + 1 tokens a cycle."""
    drafted = []
    for _ in range(num_cycles):
        root = cycle_of(chain_of())
        length = policy.plan(root).depth
        drafted.append(length)
        cycle = cycle_of(chain_of(*[0.9] * length))
        cycle_s = 0.01 * (length + 1) / utility(length)
        draft_s = float(cycle.terms.draft_s[length])
        policy.observe(outcome_of(cycle, length, cycle_s - draft_s))
    return drafted


def test_cascade_climbs_to_the_length_of_the_best_utility() -> None:
    """Plain steps; 3, then 4 is worse, so down: 2 is better, 1 is worse; then 2 is kept."""
    utility = {0: 1.0, 1: 1.3, 2: 1.8, 3: 1.5, 4: 1.2}
    run = lengths(Cascade(), utility.__getitem__, 40)
    assert run == [0] * 4 + [3] * 4 + [4] * 4 + [2] * 4 + [1] * 4 + [2] * 16 + [2] * 4


def test_cascade_ends_a_test_when_utility_hardly_changes() -> None:
    utility = {0: 1.0, 3: 1.5, 4: 1.6}
    run = lengths(Cascade(), utility.__getitem__, 20)
    assert run == [0] * 4 + [3] * 4 + [4] * 4 + [4] * 8


def test_cascade_rests_for_longer_and_longer_when_nothing_pays() -> None:
    utility = {0: 1.0, 1: 0.8, 2: 0.7, 3: 0.6, 4: 0.5}
    test = [3] * 4 + [4] * 4 + [2] * 4 + [1] * 4
    run = lengths(Cascade(), utility.__getitem__, 132)
    assert run == [0] * 4 + test + [0] * 32 + test + [0] * 64
