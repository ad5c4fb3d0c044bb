"""Selections: legal ones, refused ones, and the committed tokens that they promise."""

from __future__ import annotations

import numpy as np
import pytest

from specfit.core.errors import InvalidSelectionError
from specfit.core.selection import Selection
from specfit.core.tree import DraftTree
from specfit.testing.examples import example_tree


@pytest.fixture
def tree() -> DraftTree:
    return example_tree("two-branches")  # parents -1, 0, 0, 1, 2, 3


def test_nodes_are_ascending(tree: DraftTree) -> None:
    selection = Selection.from_nodes(tree, [3, 0, 1])
    assert selection.nodes.tolist() == [0, 1, 3]
    assert len(selection) == 3


def test_the_root_alone_is_a_plain_step(tree: DraftTree) -> None:
    assert Selection.root_only(tree).nodes.tolist() == [0]


def test_expected_committed_counts_the_root(tree: DraftTree) -> None:
    probs = np.array([1.0, 0.5, 0.375, 0.375, 0.1875, 0.1875])
    assert Selection.root_only(tree).expected_committed(probs) == 1.0
    assert Selection.from_nodes(tree, (0, 1, 3)).expected_committed(probs) == 1.875


def test_a_selection_without_the_root_is_refused(tree: DraftTree) -> None:
    with pytest.raises(InvalidSelectionError, match=r"must contain the root"):
        Selection(tree, np.zeros(6, bool))


def test_an_orphan_is_refused_with_its_parent(tree: DraftTree) -> None:
    with pytest.raises(InvalidSelectionError, match=r"node 3 is selected without its parent 1"):
        Selection.from_nodes(tree, (0, 2, 3))


@pytest.mark.parametrize("nodes", [(0, 6), (0, -1)])
def test_a_node_of_no_tree_is_refused(tree: DraftTree, nodes: tuple[int, ...]) -> None:
    with pytest.raises(InvalidSelectionError, match=r"nodes of this tree are 0 to 5"):
        Selection.from_nodes(tree, nodes)


@pytest.mark.parametrize("mask", [np.ones(5, bool), np.ones(6, np.int8), np.ones((6, 1), bool)])
def test_a_mask_is_one_bool_a_node(tree: DraftTree, mask: np.ndarray) -> None:
    with pytest.raises(InvalidSelectionError, match=r"one bool for each of the 6 nodes"):
        Selection(tree, mask)


def test_the_mask_is_read_only(tree: DraftTree) -> None:
    with pytest.raises(ValueError, match=r"read-only"):
        Selection.root_only(tree).mask[1] = True
