"""Policies that weigh tokens against the mean time of a pass, on trees worked by hand."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from specfit.core.copies import CopyTerms
from specfit.core.cost import CostTerms
from specfit.policies import Evict, Sequoia, Yggdrasil
from specfit.policies.mean_pass import dearest_expert_s, mean_pass_s
from specfit.policies.sequoia import TreeTable, rank_probs
from tests.unit.policies.cycles import after, cycle_of, selected, tree_of

STAR = tree_of((-1, 0, 0, 0, 0), (1.0, 0.5, 0.25, 0.125, 0.0625))


def test_the_mean_pass_takes_the_union_of_independent_tokens() -> None:
    """64 experts of 1.1 ms: one token needs an eighth, two 1 - (7/8)**2."""
    seconds = mean_pass_s(cycle_of(STAR), 2, paid=1.0)
    union_s = np.array([0, 0.125, 0.234375]) * 64 * 1.1e-3
    assert seconds == pytest.approx(np.array([0, 10.2e-3, 10.4e-3]) + union_s)
    assert mean_pass_s(cycle_of(STAR), 2, paid=0.5) == pytest.approx(seconds - union_s / 2)


def test_the_mean_pass_knows_copies_that_cost_by_a_table() -> None:
    plain = cycle_of(STAR)
    copies = CopyTerms(np.ones((4, 16)), np.tile([0.0, 1e-3, 2e-3], (4, 1)))
    terms = CostTerms(plain.terms.draft_s, plain.terms.tau_s, np.full((4, 16), 1e-4), copies)
    cycle = replace(plain, _terms=lambda: terms)
    assert mean_pass_s(cycle, 5, paid=0.7) == pytest.approx(mean_pass_s(plain, 5, paid=0.7))
    assert dearest_expert_s(terms) == pytest.approx(dearest_expert_s(plain.terms))


def test_evict_takes_the_prefix_of_the_best_ratio() -> None:
    """Per ms: 1 / 20.0, 1.5 / 27.9, 1.75 / 34.8; with free experts every node raises the ratio."""
    cycle = cycle_of(STAR)
    assert selected(Evict(), cycle) == [0, 1]
    assert selected(Evict(paid=0.0), cycle) == [0, 1, 2, 3, 4]
    assert selected(Evict(paid=0.0, max_nodes=3), cycle) == [0, 1, 2]


def test_yggdrasil_leaves_out_what_its_levels_of_equal_size_do_not_hold() -> None:
    """Levels of two: nodes 3 and 5 are the best of level 2; 4 and 6 were drawn, not grown."""
    tree = tree_of((-1, 0, 0, 1, 1, 2, 2), (1.0, 0.6, 0.4, 0.5, 0.4, 0.65, 0.3))
    cycle = cycle_of(tree)
    assert selected(Yggdrasil(depth=2, top_k=2, paid=0.0), cycle) == [0, 1, 2, 3, 5]
    assert selected(Evict(depth=2, top_k=2, paid=0.0), cycle) == list(range(7))
    assert selected(Yggdrasil(depth=2, top_k=2, paid=0.0, max_nodes=3), cycle) == [0, 1, 2]


def best_by_enumeration(probs: tuple[float, ...], num_nodes: int, depth: int) -> float:
    """Return the most expected tokens of a tree of exactly so many nodes, by trying all."""
    if num_nodes == 1:
        return 1.0
    if depth == 0:
        return -np.inf
    best = -np.inf
    for ways in range(1, min(len(probs), num_nodes - 1) + 1):
        for sizes in itertools.product(range(1, num_nodes), repeat=ways):
            if sum(sizes) == num_nodes - 1:
                pairs = zip(probs, sizes, strict=False)
                total = 1.0 + sum(p * best_by_enumeration(probs, s, depth - 1) for p, s in pairs)
                best = max(best, total)
    return best


def test_the_sequoia_table_by_hand() -> None:
    """Four nodes at p = .8, .1: a chain commits 2.952, in two levels a side branch 2.54."""
    table = TreeTable(np.array([0.8, 0.1]), 4, 3)
    assert table.committed[4, 3] == pytest.approx(1 + 0.8 * (1 + 0.8 * 1.8))
    assert table.committed[4, 2] == pytest.approx(1 + 0.8 * 1.8 + 0.1)
    assert table.committed[4, 1] == -np.inf  # a root with two children has three nodes
    assert table.topology(4, 2).parents == (-1, 0, 0, 2)
    assert table.topology(4, 2).ranks == (0, 1, 0, 0)


@pytest.mark.parametrize("probs", [(0.5, 0.25, 0.125), (0.8, 0.1), (0.4, 0.3, 0.2)])
def test_the_sequoia_table_equals_enumeration(probs: tuple[float, ...]) -> None:
    table = TreeTable(np.array(probs), 6, 3)
    for num_nodes, depth in itertools.product(range(1, 7), range(4)):
        expected = best_by_enumeration(probs, num_nodes, depth)
        assert table.committed[num_nodes, depth] == pytest.approx(expected)


def test_a_topology_commits_what_its_table_says() -> None:
    probs = np.array([0.5, 0.25, 0.125])
    table = TreeTable(probs, 12, 4)
    for num_nodes in range(2, 13):
        topology = table.topology(num_nodes, 4)
        values = [1.0]
        for parent, rank in zip(topology.parents[1:], topology.ranks[1:], strict=True):
            values.append(values[parent] * probs[rank])
        assert len(values) == num_nodes
        assert topology.depth <= 4
        assert sum(values) == pytest.approx(table.committed[num_nodes, 4])


def test_sequoia_takes_acceptance_by_rank_from_the_acceptance_model() -> None:
    assert rank_probs(cycle_of(STAR), 3).tolist() == [0.5, 0.25, 0.125]


def test_sequoia_selects_by_place_and_not_by_probability() -> None:
    """With free experts, of 4 nodes at p = .5, .25, .125: a child with one child, and a second."""
    policy = Sequoia(max_nodes=4, top_k=3, paid=0.0)
    tree = tree_of((-1, 0, 0, 0, 1, 2), (1.0, 0.3, 0.29, 0.28, 0.1, 0.9))
    cycle = cycle_of(tree)
    assert policy.plan(after(cycle, 1)).depth == 2
    assert selected(policy, cycle) == [0, 1, 2, 4]
    assert selected(policy, after(cycle, 4)) == [0, 1, 2]  # what was not drawn is left out


def test_sequoia_drafts_nothing_where_nothing_pays() -> None:
    """A second node takes 8.9 ms for half a token, a plain step 19 ms for one."""
    policy = Sequoia(max_nodes=4, top_k=3)
    assert policy.plan(after(cycle_of(STAR), 1)).depth == 1
    dear = Sequoia(max_nodes=4, top_k=3, paid=5.0)
    assert dear.plan(after(cycle_of(STAR), 1)).is_plain
