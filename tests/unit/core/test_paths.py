"""Paths through a selection: the kernels beside the obvious way to follow them."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfit.core._kernels import counts_up, fill_accepted, fill_text_path
from specfit.core.selection import Selection
from specfit.core.tree import DraftTree
from specfit.testing.strategies import trees


def follow(tree: DraftTree, nodes: list[int], wanted: dict[int, int]) -> list[int]:
    """Return the nodes from the root to child after child that carries ``wanted[node]``."""
    path = [0]
    while True:
        ahead = [
            child
            for child in tree.children(path[-1]).tolist()
            if child in nodes and tree.tokens[child] == wanted.get(path[-1])
        ]
        if not ahead:
            return path
        path.append(ahead[0])


def a_selection(tree: DraftTree, chosen: list[bool]) -> Selection:
    mask = np.array(chosen[: len(tree)])
    mask[0] = True
    for node, parent in enumerate(tree.parents.tolist()[1:], 1):
        mask[node] &= mask[parent]
    return Selection(tree, mask)


def with_tokens(tree: DraftTree) -> DraftTree:
    """Return the tree with siblings told apart by few tokens, so that paths are met."""
    return DraftTree.from_arrays(tree.parents, tree.cond_probs, tree.ranks.astype(np.int64))


@given(trees(max_nodes=24), st.lists(st.booleans(), min_size=24, max_size=24), st.data())
def test_the_accepted_path_follows_each_nodes_answer(
    drawn: DraftTree, chosen: list[bool], data: st.DataObject
) -> None:
    tree = with_tokens(drawn)
    nodes = a_selection(tree, chosen).nodes
    answers = data.draw(st.lists(st.integers(0, 2), min_size=len(nodes), max_size=len(nodes)))
    rows = np.empty(len(nodes), np.intp)
    count = fill_accepted(tree.parents, tree.tokens, nodes, np.array(answers), rows)
    wanted = dict(zip(nodes.tolist(), answers, strict=True))
    assert nodes[rows[:count]].tolist() == follow(tree, nodes.tolist(), wanted)


@given(
    trees(max_nodes=24),
    st.lists(st.booleans(), min_size=24, max_size=24),
    st.lists(st.integers(0, 2), max_size=6),
)
def test_the_path_of_a_text_follows_its_tokens(
    drawn: DraftTree, chosen: list[bool], text: list[int]
) -> None:
    tree = with_tokens(drawn)
    nodes = a_selection(tree, chosen).nodes
    rows = np.empty(min(len(nodes), len(text)), np.intp)
    count = fill_text_path(tree.parents, tree.tokens, nodes, np.array(text, np.int64), rows)
    wanted = {node: [*text, -1][min(d, len(text))] for node, d in enumerate(tree.depths)}
    expected = follow(tree, nodes.tolist(), wanted)[: len(text)]
    assert nodes[rows[:count]].tolist() == expected


@pytest.mark.parametrize(
    ("nodes", "does"), [([], True), ([0, 1, 2], True), ([0, 2, 1], False), ([1], False)]
)
def test_whether_values_count_up(nodes: list[int], does: bool) -> None:
    assert counts_up(np.array(nodes, np.int32)) == does
