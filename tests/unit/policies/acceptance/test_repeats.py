"""Runs of tokens that stood in the text before, against a search by slices."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specfit.core.tree import DraftTree
from specfit.policies.acceptance._repeats import LONGEST_RUN, WINDOW, find_repeats, longest_run


def by_slices(text: list[int], path: list[int]) -> tuple[int, int]:
    """Return the longest run that ends the path, which begins at a root, and stood in the text."""
    whole, root = text + path, len(text)
    for length in range(LONGEST_RUN, 0, -1):
        for end in range(root - 1, max(root - 1 - WINDOW, -1), -1):
            run = whole[max(end - length + 1, 0) : end + 1]
            if len(run) == length and run == whole[len(whole) - length :]:
                return length, whole[end + 1]
    return 0, -1


tokens = st.integers(0, 2)


@given(st.lists(tokens, max_size=30), st.lists(tokens, min_size=1, max_size=6))
def test_the_longest_and_latest_run_is_found(text: list[int], path: list[int]) -> None:
    found = longest_run(np.array(text + path), len(text), len(text) + len(path) - 1)
    assert found == by_slices(text, path)


@given(st.lists(tokens, max_size=30), st.data())
def test_every_node_of_a_tree_is_told_by_its_own_path(text: list[int], data: st.DataObject) -> None:
    parents = [-1, *(data.draw(st.integers(0, node)) for node in range(6))]
    drawn = data.draw(st.lists(tokens, min_size=7, max_size=7))
    probs = np.array([1.0, *[0.5] * 6])
    tree = DraftTree.from_arrays(np.array(parents, np.int32), probs, np.array(drawn))
    found = np.empty((2, 7), np.int8)
    for kernel, out in ((find_repeats, found[0]), (find_repeats.py_func, found[1])):
        kernel(np.array(text, np.int64), tree.tokens, tree.parents, out)
    expected = [0]
    for node in range(1, 7):
        path = [drawn[above] for above in tree.path(parents[node])]
        length, follower = by_slices(text, path)
        expected.append(length if follower == drawn[node] else -length)
    np.testing.assert_array_equal(found, [expected, expected])


def test_a_run_is_not_looked_for_beyond_the_window() -> None:
    for gap, length in ((WINDOW - 1, 1), (WINDOW, 0)):
        text = np.concatenate([[7], np.arange(100, 100 + gap), [7]])
        assert longest_run(text, len(text) - 1, len(text) - 1)[0] == length
