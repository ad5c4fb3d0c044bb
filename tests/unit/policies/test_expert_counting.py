"""Policies that count the experts of each node, on trees worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from specfit.policies import EcoSpec, S2MoE, S2MoEStatic
from specfit.policies.expert_sets import along_paths, expert_sets
from specfit.testing.examples import make_cycle
from tests.unit.policies.cycles import GEOMETRY, after, chain_of, cycle_of, selected, tree_of

STAR = tree_of((-1, 0, 0, 0, 0), (1.0, 0.5, 0.25, 0.125, 0.0625))


def test_a_set_has_the_most_probable_experts() -> None:
    probs = np.full((1, 4, 16), 0.1, np.float32)
    probs[0, :, 7], probs[0, :, 3] = 0.9, 0.2
    sets = expert_sets(make_cycle(chain_of(), geometry=GEOMETRY, expert_probs=probs))
    assert np.flatnonzero(sets[0, 0]).tolist() == [3, 7]
    assert np.count_nonzero(sets) == 4 * 2


@given(arrays(np.float32, (2, 4, 16), elements=st.sampled_from([0.0, 0.125, 0.25, 0.5, 1.0])))
def test_sets_are_those_of_a_stable_sort(probs: np.ndarray) -> None:
    cycle = make_cycle(chain_of(0.5), geometry=GEOMETRY, expert_probs=probs)
    order = np.argsort(-probs, axis=2, kind="stable")[:, :, :2]
    expected = np.zeros(probs.shape, bool)
    np.put_along_axis(expected, order, True, axis=2)
    assert (expert_sets(cycle) == expected).all()


def test_paths_unite_the_sets_of_their_nodes() -> None:
    cycle = cycle_of(tree_of((-1, 0, 1, 0), (1.0, 0.5, 0.5, 0.5)), [(0, 1), (2, 3), (4, 5), (6, 7)])
    unions = along_paths(cycle.tree.parents, expert_sets(cycle))
    assert [np.flatnonzero(u[0]).tolist() for u in unions] == [
        [0, 1],
        [0, 1, 2, 3],
        [0, 1, 2, 3, 4, 5],
        [0, 1, 6, 7],
    ]


def test_ecospec_recounts_after_every_pick() -> None:
    """First node 3, which needs nothing new; then .5 / 8 beats .25 / 8 and .0625 / 4; then node 4
    needs nothing new either."""
    cycle = cycle_of(STAR, [(0, 1), (2, 3), (6, 7), (0, 1), (0, 2)])
    assert selected(EcoSpec(num_picks=1), cycle) == [0, 3]
    assert selected(EcoSpec(num_picks=2), cycle) == [0, 1, 3]
    assert selected(EcoSpec(num_picks=3), cycle) == [0, 1, 3, 4]
    assert selected(EcoSpec(num_picks=9), cycle) == [0, 1, 2, 3, 4]


def test_ecospec_takes_whole_paths() -> None:
    """The leaf costs nothing beyond its path: .4 / 8 beats .3 / 8 of the sibling."""
    tree = tree_of((-1, 0, 0, 1), (1.0, 0.5, 0.3, 0.8))
    cycle = cycle_of(tree, [(0, 1), (2, 3), (4, 5), (2, 3)])
    assert selected(EcoSpec(num_picks=1), cycle) == [0, 1]
    assert selected(EcoSpec(num_picks=2), cycle) == [0, 1, 3]


def test_ecospec_does_not_look_at_residency() -> None:
    experts = [(0, 1), (2, 3), (6, 7), (0, 1), (0, 2)]
    for resident in ((), (2, 3), (6, 7)):
        cycle = cycle_of(STAR, experts, resident=resident)
        assert selected(EcoSpec(num_picks=2), cycle) == [0, 1, 3]


def test_s2_moe_admits_while_worth_is_at_least_one() -> None:
    """A plain step takes 19 ms, a copy 1.1, the level 0.25 a node. Node 1: .5 * 19 / 9.05 = 1.05;
    node 2 then needs nothing new; node 3: .125 * 19 / 9.05 = 0.26."""
    cycle = cycle_of(STAR, [(0, 1), (2, 3), (2, 3), (6, 7), (8, 9)])
    assert selected(S2MoE(), cycle) == [0, 1, 2]
    assert selected(S2MoE(expert_scale=1.1), cycle) == [0]  # node 1: 9.5 / 9.93
    assert selected(S2MoE(max_nodes=2), cycle) == [0, 1]


def test_s2_moe_drafts_on_from_admitted_nodes_only() -> None:
    tree = tree_of((-1, 0, 0, 2), (1.0, 0.6, 0.1, 1.0))
    cycle = cycle_of(tree, [(0, 1), (2, 3), (4, 5), (4, 5)])
    assert S2MoE().after_level(after(cycle, 3))
    assert selected(S2MoE(), cycle) == [0, 1]
    assert not S2MoE().after_level(cycle)


@pytest.mark.parametrize(("resident", "expected"), [((), [0]), ((2, 3, 4, 5), [0, 1, 2])])
def test_the_static_variant_counts_no_expert_of_its_fixed_list(
    resident: tuple[int, ...], expected: list[int]
) -> None:
    """The list is that of the first cycle, whatever is resident later."""
    experts = [(0, 1), (2, 3), (4, 5)]
    policy = S2MoEStatic()
    first = cycle_of(chain_of(0.4, 0.9), experts, resident=resident)
    policy.plan(after(first, 1))
    later = cycle_of(chain_of(0.4, 0.9), experts, resident=(9,))
    policy.plan(after(later, 1))
    assert selected(policy, later) == expected
