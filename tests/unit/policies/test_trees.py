"""Policies that grow trees by probability alone, on trees worked by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given

from specfit.core.tree import DraftTree, most_probable
from specfit.policies import Ddd, DySpec, Eagle3, OptTree, SpecExec, Talon
from specfit.policies.dyspec import worth
from specfit.testing import strategies
from tests.unit.policies.cycles import after, chain_of, cycle_of, selected, tree_of

BRANCHES = tree_of((-1, 0, 0, 1, 2, 3), (1.0, 0.5, 0.375, 0.75, 0.5, 0.5))
"""Path probabilities 1, .5, .375, .375, .1875, .1875; levels end at nodes 2, 4, 5."""


def test_eagle3_takes_the_most_probable_and_of_equal_ones_the_shallower() -> None:
    cycle = cycle_of(BRANCHES)
    assert selected(Eagle3(max_nodes=3), cycle) == [0, 1, 2]
    assert selected(Eagle3(max_nodes=5), cycle) == [0, 1, 2, 3, 4]


def test_opt_tree_stops_when_a_level_adds_too_little() -> None:
    """Of 5 nodes: 0.875 from level 1, then 0.5625 from level 2, then 0 from level 3."""
    cycle, policy = cycle_of(BRANCHES), OptTree(max_nodes=5)
    assert policy.after_level(after(cycle, 3))
    assert policy.after_level(after(cycle, 5))
    assert not policy.after_level(cycle)
    assert not OptTree(max_nodes=5, threshold=0.6).after_level(after(cycle, 5))
    assert selected(OptTree(max_nodes=3), cycle) == [0, 1, 2]


def test_specexec_stops_when_a_level_has_none_of_the_best() -> None:
    cycle, policy = cycle_of(chain_of(0.9, 0.8, 0.7, 0.6)), SpecExec(max_nodes=3)
    assert policy.after_level(after(cycle, 3))
    assert not policy.after_level(after(cycle, 4))
    assert selected(policy, cycle) == [0, 1, 2]


def test_specexec_drops_what_is_below_the_log_probability() -> None:
    """Path probabilities .9, .72, .504; exp(-0.5) = 0.607."""
    cycle = cycle_of(chain_of(0.9, 0.8, 0.7))
    assert selected(SpecExec(min_log_prob=-0.5), cycle) == [0, 1, 2]


def test_dyspec_prefers_a_likely_place_to_a_likely_token() -> None:
    """The child of node 1 comes to be drawn with 0.6, the root's second child with 0.4."""
    tree = tree_of((-1, 0, 0, 1), (1.0, 0.6, 0.1, 0.1))
    assert worth(tree).tolist() == pytest.approx([1.0, 1.0, 0.4, 0.6])
    assert selected(DySpec(max_nodes=3), cycle_of(tree)) == [0, 1, 3]
    assert selected(Eagle3(max_nodes=3), cycle_of(tree)) == [0, 1, 2]


def test_dyspec_drafts_while_a_place_is_worth_a_node() -> None:
    cycle = cycle_of(chain_of(0.5, 0.3))
    assert DySpec(max_nodes=4).after_level(after(cycle, 2))
    assert not DySpec(max_nodes=4).after_level(cycle)  # 0.15 < 1 / 4


def test_ddd_looks_at_the_beam_at_some_levels_only() -> None:
    """After level 2 the beam of two has 0.375 + 0.1875, whose log is -0.58."""
    cycle = cycle_of(BRANCHES)
    careful = Ddd(top_k=2, first_check=2, threshold=-0.5)
    assert careful.after_level(after(cycle, 3))
    assert not careful.after_level(after(cycle, 5))
    assert Ddd(top_k=2, first_check=2, threshold=-0.6).after_level(after(cycle, 5))
    assert Ddd(top_k=2, first_check=1, check_every=2, threshold=-0.5).after_level(after(cycle, 5))


def test_talon_keeps_what_is_near_the_best_of_its_level() -> None:
    """On level 2 the best has 0.375: 0.1875 is half of it."""
    cycle = cycle_of(BRANCHES)
    assert selected(Talon(top_k=2, ratio=0.6), cycle) == [0, 1, 2, 3, 5]
    assert selected(Talon(top_k=2, ratio=0.5), cycle) == [0, 1, 2, 3, 4, 5]


def test_talon_stops_when_its_budget_is_spent() -> None:
    cycle = cycle_of(BRANCHES)
    assert Talon(max_nodes=4, top_k=2).after_level(after(cycle, 3))
    assert not Talon(max_nodes=4, top_k=2).after_level(after(cycle, 5))
    assert selected(Talon(max_nodes=4, top_k=2), cycle) == [0, 1, 2, 3]


@given(strategies.trees())
def test_every_prefix_of_both_orders_is_closed(tree: DraftTree) -> None:
    by_worth = np.lexsort((tree.depths, -worth(tree)))
    for order in (most_probable(tree, tree.path_probs), by_worth):
        place = np.argsort(order)
        assert place[0] == 0
        assert (place[tree.parents[1:]] < place[1:]).all()
