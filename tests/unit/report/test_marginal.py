import numpy as np
import pytest

from specfit.core.cost import ProfileCost
from specfit.core.experts import Residency
from specfit.core.selection import Selection
from specfit.core.tree import DraftTree, first_need_probs
from specfit.report.marginal import marginal_expert_s
from specfit.testing.examples import example_geometry, example_profile, make_cycle

GEOMETRY = example_geometry(num_layers=1, num_experts=4, experts_per_token=1)


def cycle_of(parents, experts, resident=()):
    """Return a cycle whose nodes each need exactly one expert for certain."""
    tree = DraftTree.from_arrays(
        np.array(parents, np.int32), np.array([1.0] + [0.25] * (len(parents) - 1))
    )
    probs = np.zeros((len(tree), 1, 4), np.float32)
    probs[np.arange(len(tree)), 0, experts] = 1.0
    mask = np.zeros((1, 4), bool)
    mask[0, list(resident)] = True
    return make_cycle(tree, geometry=GEOMETRY, residency=Residency(mask), expert_probs=probs)


def test_a_node_needs_first_only_what_no_ancestor_needs():
    tree = DraftTree.from_arrays(np.array([-1, 0, 1], np.int32), np.ones(3))
    probs = np.array([[[0.5]], [[0.5]], [[0.5]]], np.float32)
    assert first_need_probs(tree.parents, probs).ravel().tolist() == [0.5, 0.25, 0.125]


def test_a_shared_expert_costs_nobody_and_an_own_one_its_copy():
    cycle = cycle_of([-1, 0, 0, 0], [0, 1, 1, 2])
    seconds = marginal_expert_s(cycle, Selection.from_nodes(cycle.tree, (0, 1, 2, 3)))
    profile = example_profile()
    missing_s = profile.copy_s + profile.resident_expert_s
    assert seconds == pytest.approx([missing_s, 0.0, 0.0, missing_s])


def test_a_node_left_out_is_priced_with_its_ancestors_taken_along():
    cycle = cycle_of([-1, 0, 1], [0, 1, 2], resident=(1,))
    seconds = marginal_expert_s(cycle, Selection.root_only(cycle.tree))
    profile = example_profile()
    missing_s = profile.copy_s + profile.resident_expert_s
    assert seconds == pytest.approx([missing_s, profile.resident_expert_s, missing_s])


def test_what_the_nodes_of_a_chain_add_is_what_the_chain_costs():
    rng = np.random.default_rng(3)
    probs = rng.uniform(0, 1, (5, 4, 16)).astype(np.float32)
    tree = DraftTree.from_arrays(
        np.array([-1, 0, 1, 2, 3], np.int32), np.array([1.0, 0.5, 0.5, 0.5, 0.5])
    )
    cycle = make_cycle(tree, expert_probs=probs)
    chain = Selection.from_nodes(tree, (0, 1, 2, 3, 4))
    union = 1 - np.prod(1 - probs.astype(float), axis=0)
    weight_s = ProfileCost(example_profile()).terms(cycle.residency, 100).weight_s
    assert marginal_expert_s(cycle, chain).sum() == pytest.approx((weight_s * union).sum())
