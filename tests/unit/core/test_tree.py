"""Draft trees: what they derive from parents, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specfit.core import _kernels
from specfit.core.errors import InvalidPlanError, InvalidTreeError
from specfit.core.tree import (
    DraftLevel,
    DraftPlan,
    DraftTree,
    frontier,
    most_probable,
    path_products,
)

#      0
#    1   2
#   3 4   5
#     6
PARENTS = np.array([-1, 0, 0, 1, 1, 2, 4], np.int32)
PROBS = np.array([1.0, 0.5, 0.25, 0.5, 0.25, 1.0, 0.5])


def tree() -> DraftTree:
    return DraftTree.from_arrays(PARENTS, PROBS)


def test_depths_ranks_and_path_probabilities() -> None:
    t = tree()
    assert t.depths.tolist() == [0, 1, 1, 2, 2, 2, 3]
    assert t.ranks.tolist() == [0, 0, 1, 0, 1, 0, 0]
    assert t.num_levels == 3
    assert t.path_probs == pytest.approx([1, 0.5, 0.25, 0.25, 0.125, 0.25, 0.0625])
    assert path_products(PARENTS, PROBS).tolist() == [1, 0.5, 0.25, 0.25, 0.125, 0.25, 0.0625]


def test_children_and_paths() -> None:
    t = tree()
    assert t.children(1).tolist() == [3, 4]
    assert t.children(6).tolist() == []
    assert t.path(6) == (0, 1, 4, 6)
    assert t.path(0) == (0,)


def test_the_ancestor_mask_is_the_paths() -> None:
    t = tree()
    for node in range(len(t)):
        assert tuple(np.flatnonzero(t.ancestor_mask[node])) == t.path(node)


@pytest.mark.parametrize("kernel", ["fill_depths", "fill_products", "fill_ancestors"])
def test_kernels_equal_their_python_twins(kernel: str) -> None:
    compiled = getattr(_kernels, kernel)
    twin = getattr(compiled, "py_func", compiled)
    out = {
        "fill_depths": lambda: [np.zeros(7, np.int32)],
        "fill_products": lambda: [PROBS, np.ones(7)],
        "fill_ancestors": lambda: [np.eye(7, dtype=bool)],
    }[kernel]
    one, other = out(), out()
    compiled(PARENTS, *one)
    twin(PARENTS, *other)
    assert np.array_equal(one[-1], other[-1])


def test_the_root_alone_is_a_tree() -> None:
    t = DraftTree.root(17)
    assert (len(t), t.num_levels, t.path_probs.tolist()) == (1, 0, [1.0])
    assert t.ancestor_mask.tolist() == [[True]]


def level(parents: list[int], probs: list[float]) -> DraftLevel:
    n = len(parents)
    return DraftLevel(
        parents=np.array(parents, np.int32),
        tokens=np.arange(n, dtype=np.int64),
        log_probs=np.log(np.array(probs)).astype(np.float32),
        ranks=np.zeros(n, np.int32),
        entropies=np.ones(n, np.float32),
    )


def test_growing_keeps_the_nodes_that_exist() -> None:
    grown = tree().grow(level([3, 6], [0.5, 0.5]))
    assert len(grown) == 9
    assert grown.parents[:7].tolist() == PARENTS.tolist()
    assert grown.depths[7:].tolist() == [3, 4]
    assert grown.entropies[7:].tolist() == [1, 1]


def test_arrays_are_read_only() -> None:
    t = tree()
    for array in (t.tokens, t.parents, t.log_probs, t.ranks, t.depths, t.path_probs):
        with pytest.raises(ValueError, match=r"read-only"):
            array[0] = 0


def test_a_probability_of_zero_is_a_log_of_minus_infinity() -> None:
    t = DraftTree.from_arrays(np.array([-1, 0, 1], np.int32), np.array([1.0, 0.0, 0.5]))
    assert t.path_probs.tolist() == [1.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"parents": np.array([0, 0, 0], np.int32)}, r"parents\[0\] must be -1, the root's; got 0"),
        (
            {"parents": np.array([-1, 0, 2], np.int32)},
            r"parents\[2\] = 2, but a parent must come before its child \(0 <= parents\[2\] < 2\)",
        ),
        ({"parents": np.array([-1, -1, 0], np.int32)}, r"parents\[1\] = -1, but a parent"),
        ({"log_probs": np.array([0, 0.5, 0], np.float32)}, r"log_probs\[1\] = 0.5, but the log"),
        ({"log_probs": np.array([0, 0, np.nan], np.float32)}, r"log_probs\[2\] = nan"),
        ({"log_probs": np.array([-1, 0, 0], np.float32)}, r"log_probs\[0\] must be 0"),
        ({"ranks": np.zeros(2, np.int32)}, r"one value a node in every array; got 3 tokens"),
        ({"tokens": np.zeros(0, np.int64)}, r"at least the root"),
    ],
)
def test_what_is_no_tree_is_refused(change: dict[str, Any], message: str) -> None:
    arrays: dict[str, Any] = {
        "tokens": np.zeros(3, np.int64),
        "parents": np.array([-1, 0, 1], np.int32),
        "log_probs": np.zeros(3, np.float32),
        "ranks": np.zeros(3, np.int32),
        "entropies": np.zeros(3, np.float32),
    }
    with pytest.raises(InvalidTreeError, match=message):
        DraftTree(**{**arrays, **change})


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ((-1, 4, 60), r"depth must be 0 or more; got -1"),
        ((3, 0, 60), r"top_k must be at least 1; got 0"),
        ((3, 4, 0), r"max_nodes counts the root and must be at least 1; got 0"),
    ],
)
def test_what_is_no_plan_is_refused(plan: tuple[int, int, int], message: str) -> None:
    with pytest.raises(InvalidPlanError, match=message):
        DraftPlan(*plan)


def test_the_frontier_is_the_best_of_the_newest_level() -> None:
    t = DraftTree.from_arrays(
        np.array([-1, 0, 0, 0, 1, 1, 2, 3], np.int32),
        np.array([1.0, 0.5, 0.25, 0.25, 0.25, 0.5, 0.5, 0.5]),
    )
    assert frontier(t, 2).tolist() == [4, 5]
    assert frontier(t, 1).tolist() == [5]
    assert frontier(t, 9).tolist() == [4, 5, 6, 7]
    assert frontier(DraftTree.root(0), 4).tolist() == [0]


def test_of_equally_probable_nodes_the_lower_index_is_expanded() -> None:
    t = DraftTree.from_arrays(np.array([-1, 0, 0, 0], np.int32), np.array([1.0, 0.25, 0.5, 0.25]))
    assert frontier(t, 2).tolist() == [1, 2]


@pytest.mark.parametrize("num_nodes", [1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1024])
def test_chains_and_stars_of_every_size(num_nodes: int) -> None:
    nodes = np.arange(num_nodes)
    chain = DraftTree.from_arrays((nodes - 1).astype(np.int32), np.ones(num_nodes))
    assert chain.depths.tolist() == nodes.tolist()
    star = DraftTree.from_arrays(
        np.where(nodes, 0, -1).astype(np.int32), np.where(nodes, 0.001, 1.0)
    )
    assert star.depths.tolist() == [0, *[1] * (num_nodes - 1)]
    assert star.ranks.tolist() == [0, *range(num_nodes - 1)]


def random_tree(rng: np.random.Generator) -> DraftTree:
    size = int(rng.integers(1, 30))
    parents = np.array([-1] + [rng.integers(0, i) for i in range(1, size)], np.int32)
    return DraftTree.from_arrays(parents, np.r_[1.0, rng.choice([0.25, 0.5, 1.0], size - 1)])


@pytest.mark.parametrize("top_k", [1, 2, 5])
def test_the_frontier_is_the_newest_levels_best(top_k: int) -> None:
    rng = np.random.default_rng(top_k)
    for _ in range(200):
        tree = random_tree(rng)
        newest = np.flatnonzero(tree.depths == tree.num_levels)
        order = np.argsort(-tree.path_probs[newest], kind="stable")
        assert frontier(tree, top_k).tolist() == sorted(newest[order[:top_k]].tolist())


def test_the_true_path_goes_where_tokens_agree() -> None:
    """Tokens are node numbers; the target goes 1, 4, and then where nothing is known."""
    targets = np.array([1, 4, 5, 0, -1, 6, 0])
    assert np.flatnonzero(tree().on_path(targets)).tolist() == [0, 1, 4]


def test_the_first_nodes_are_the_tree_before_the_others_were_drawn() -> None:
    whole = tree()
    for num_nodes in range(1, len(whole) + 1):
        first = whole.first(num_nodes)
        assert len(first) == num_nodes
        for name in ("tokens", "parents", "log_probs", "ranks", "entropies", "depths"):
            expected = getattr(whole, name)[:num_nodes].tolist()
            assert getattr(first, name).tolist() == expected


@pytest.mark.parametrize("num_nodes", [-1, 0, 8])
def test_a_tree_has_no_more_first_nodes_than_nodes(num_nodes: int) -> None:
    with pytest.raises(InvalidTreeError, match=f"1 to 7; got {num_nodes}"):
        tree().first(num_nodes)


def test_the_most_probable_come_first_and_of_equal_ones_the_shallower() -> None:
    """Node 5 is as probable as its parent 2 and as node 3; node 6 is a half of its parent, 4."""
    path_probs = path_products(PARENTS, PROBS)
    assert path_probs.tolist() == [1.0, 0.5, 0.25, 0.25, 0.125, 0.25, 0.0625]
    assert most_probable(tree(), path_probs).tolist() == [0, 1, 2, 3, 5, 4, 6]


def test_the_most_probable_nodes_are_the_best_selection_of_their_number() -> None:
    rng = np.random.default_rng(0)
    for _ in range(50):
        t = random_tree(rng)
        t = t.first(min(len(t), 8))
        order = most_probable(t, t.path_probs)
        closed: dict[int, float] = {}
        for bits in range(1, 2 ** len(t), 2):  # the root is in
            nodes = [n for n in range(len(t)) if bits >> n & 1]
            if all(t.parents[n] in nodes for n in nodes[1:]):
                value = float(t.path_probs[nodes].sum())
                closed[len(nodes)] = max(closed.get(len(nodes), 0.0), value)
        found = np.cumsum(t.path_probs[order])
        assert found.tolist() == pytest.approx([closed[n] for n in range(1, len(t) + 1)])


def with_states(width: int = 2) -> DraftTree:
    """Return the tree with the number of the parent as the state of each node; 0 at the root."""
    states = np.repeat(np.maximum(PARENTS, 0)[:, None], width, axis=1).astype(np.float32)
    return replace(tree(), states=states)


def test_states_grow_level_by_level_from_a_root_that_has_none() -> None:
    whole = with_states()
    grown = DraftTree.root(int(whole.tokens[0]))
    assert grown.states is None
    for depth in range(1, whole.num_levels + 1):
        grown = grown.grow(whole.level(np.flatnonzero(whole.depths == depth)))
    assert np.array_equal(grown.states, whole.states)
    assert not grown.states.flags.writeable
    assert grown.first(3).states.tolist() == whole.states[:3].tolist()
    assert tree().level(slice(1, 3)).states is None


def test_some_nodes_of_a_level_are_taken() -> None:
    level = with_states().level(slice(1, 4)).take(np.array([True, False, True]))
    assert len(level) == 2
    assert level.tokens.tolist() == tree().tokens[[1, 3]].tolist()
    assert level.parents.tolist() == PARENTS[[1, 3]].tolist()
    assert level.states.tolist() == with_states().states[[1, 3]].tolist()


def test_all_drafted_nodes_have_states_of_one_width_or_none_has() -> None:
    first, rest = with_states().first(3), slice(3, 4)
    for grown, level, found in (
        (first, tree().level(rest), r"states \[3, 2\] in the tree and None in"),
        (tree().first(3), with_states().level(rest), r"states None in the tree and \[1, 2\] in"),
        (first, with_states(5).level(rest), r"states \[3, 2\] in the tree and \[1, 5\] in"),
    ):
        with pytest.raises(InvalidTreeError, match=f"of one width, or none; got {found}"):
            grown.grow(level)


@pytest.mark.parametrize(
    ("states", "message"),
    [
        (np.zeros((6, 2), np.float32), r"finite, float32\[7, D\]; got float32\[6, 2\]"),
        (np.zeros(7, np.float32), r"got float32\[7\]"),
        (np.zeros((7, 2)), "got float64"),
        (
            np.full((7, 2), np.nan, np.float32),
            r"must be finite, float32\[7, D\]; got NaN or infinity",
        ),
    ],
)
def test_states_are_finite_numbers_one_row_a_node(states: Any, message: str) -> None:
    with pytest.raises(InvalidTreeError, match=message):
        replace(tree(), states=states)
