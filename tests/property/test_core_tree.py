"""Identities of trees and selections, over generated ones."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specfit.core.errors import InvalidSelectionError
from specfit.core.selection import Selection
from specfit.core.tree import DraftLevel, DraftTree, frontier, path_products
from specfit.testing import strategies
from tests.reference.acceptance import expected_committed


@given(strategies.trees())
def test_a_path_climbs_from_the_root_by_one_level_a_step(tree: DraftTree) -> None:
    for node in range(len(tree)):
        path = tree.path(node)
        assert path[0] == 0
        assert path[-1] == node
        assert tree.depths[list(path)].tolist() == list(range(len(path)))
        assert tree.ancestor_mask[node].sum() == len(path)
        assert tree.path_probs[node] == pytest.approx(float(np.prod(tree.cond_probs[list(path)])))


@given(strategies.trees())
def test_a_node_is_never_likelier_than_its_parent(tree: DraftTree) -> None:
    probs = tree.path_probs
    assert (probs[1:] <= probs[tree.parents[1:]]).all()


@given(strategies.trees())
def test_every_node_but_the_root_is_one_child_with_its_own_rank(tree: DraftTree) -> None:
    children = [tree.children(node) for node in range(len(tree))]
    assert sorted(np.concatenate(children).tolist()) == list(range(1, len(tree)))
    for siblings in children:
        assert tree.ranks[siblings].tolist() == list(range(len(siblings)))
        assert len(set(tree.tokens[siblings].tolist())) == len(siblings)


@given(strategies.trees(), st.integers(1, 5))
def test_the_frontier_is_the_best_of_the_newest_level(tree: DraftTree, top_k: int) -> None:
    chosen = frontier(tree, top_k)
    newest = np.flatnonzero(tree.depths == tree.num_levels)
    rest = np.setdiff1d(newest, chosen)
    assert len(chosen) == min(top_k, len(newest))
    assert np.isin(chosen, newest).all()
    if len(rest):
        assert tree.path_probs[rest].max() <= tree.path_probs[chosen].min()


@given(strategies.trees(min_nodes=2), st.data())
def test_growing_node_by_node_gives_the_same_tree(tree: DraftTree, data: st.DataObject) -> None:
    cut = data.draw(st.integers(1, len(tree) - 1))
    names = ("parents", "tokens", "log_probs", "ranks", "entropies")
    head = replace(tree, **{name: getattr(tree, name)[:cut].copy() for name in names})
    level = DraftLevel(**{name: getattr(tree, name)[cut:].copy() for name in names})
    grown = head.grow(level)
    for name in (*names, "depths", "path_probs"):
        np.testing.assert_array_equal(getattr(grown, name), getattr(tree, name))


@given(st.data())
def test_expected_committed_is_the_sum_of_path_probabilities(data: st.DataObject) -> None:
    parents = data.draw(strategies.parents())
    probs = data.draw(strategies.cond_probs(parents))
    tree = DraftTree.from_arrays(parents, probs)
    selection = data.draw(strategies.selections(tree))
    by_sum = selection.expected_committed(path_products(parents, probs))
    assert by_sum == pytest.approx(expected_committed(selection, probs), rel=1e-12)


@given(strategies.trees(), st.data())
@settings(max_examples=200)
def test_a_mask_is_a_selection_if_and_only_if_it_is_closed(
    tree: DraftTree, data: st.DataObject
) -> None:
    mask = np.array(data.draw(st.lists(st.booleans(), min_size=len(tree), max_size=len(tree))))
    closed = mask[0] and all(mask[list(tree.path(node))].all() for node in np.flatnonzero(mask))
    if closed:
        assert Selection(tree, mask).nodes.tolist() == np.flatnonzero(mask).tolist()
    else:
        with pytest.raises(InvalidSelectionError):
            Selection(tree, mask)
