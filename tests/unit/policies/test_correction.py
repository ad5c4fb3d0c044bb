"""The corrections that a running text gives: siblings stay shares, misses follow the text."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from specfit.core.tree import DraftTree, frontier
from specfit.policies.correction import AcceptanceCorrection


def random_tree(rng: np.random.Generator) -> DraftTree:
    size = int(rng.integers(1, 30))
    parents = np.array([-1] + [rng.integers(0, i) for i in range(1, size)], np.int32)
    return DraftTree.from_arrays(parents, np.r_[1.0, rng.choice([0.25, 0.5, 1.0], size - 1)])


def test_a_group_of_siblings_is_shifted_in_log_odds_and_keeps_its_shares() -> None:
    tree = DraftTree.from_arrays(np.array([-1, 0, 0]), np.array([1.0, 0.4, 0.2]))
    correction = AcceptanceCorrection(step=0.3)
    correction.shift = 1.0
    corrected = correction.correct(tree, np.array([1.0, 0.4, 0.2]))
    expected: NDArray[np.float64] = correction.shifted(np.array([0.6]))
    assert corrected[1:].sum() == pytest.approx(expected[0])
    assert corrected[1] == pytest.approx(2 * corrected[2])
    assert corrected[0] == 1.0


def test_siblings_that_are_sure_stay_sure() -> None:
    tree = DraftTree.from_arrays(np.array([-1, 0, 0]), np.array([1.0, 0.75, 0.25]))
    correction = AcceptanceCorrection(step=0.3)
    correction.shift = -2.0
    assert correction.correct(tree, tree.cond_probs).sum() == pytest.approx(2.0)


@pytest.mark.parametrize("top_k", [1, 2, 5])
def test_the_frontier_is_the_newest_levels_best(top_k: int) -> None:
    rng = np.random.default_rng(top_k)
    for _ in range(200):
        tree = random_tree(rng)
        newest = np.flatnonzero(tree.depths == tree.num_levels)
        order = np.argsort(-tree.path_probs[newest], kind="stable")
        assert frontier(tree, top_k).tolist() == sorted(newest[order[:top_k]].tolist())
