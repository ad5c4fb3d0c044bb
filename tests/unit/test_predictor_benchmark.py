"""The predictor benchmark: its unions are right by hand."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.predictor_rows import Hard, marginal_unions
from specfit.core.tree import DraftTree
from specfit.policies.predictors import HiddenProbe, PreviousToken


def test_marginal_unions_by_hand() -> None:
    """Root needs {0, 1}, its child {1, 2}, the grandchild {0, 3}, the other child {0, 1}."""
    tree = DraftTree.from_arrays(np.array([-1, 0, 1, 0], np.int32), np.array([1, 0.5, 0.5, 0.5]))
    needed = np.zeros((4, 1, 4), bool)
    for node, experts in enumerate([(0, 1), (1, 2), (0, 3), (0, 1)]):
        needed[node, 0, experts] = True
    assert marginal_unions(tree, needed).tolist() == [2.0, 1.0, 1.0, 0.0]


def test_marginal_unions_of_probabilities_are_expectations() -> None:
    """Against the mean over drawn masks; five standard errors are below 0.05."""
    tree = DraftTree.from_arrays(np.array([-1, 0, 1, 1], np.int32), np.array([1, 0.5, 0.5, 0.4]))
    generator = np.random.default_rng(0)
    probs = generator.random((4, 2, 3))
    drawn = [marginal_unions(tree, generator.random(probs.shape) < probs) for _ in range(8000)]
    assert marginal_unions(tree, probs) == pytest.approx(np.mean(drawn, axis=0), abs=0.05)


def test_a_hard_prediction_needs_what_the_soft_one_needs() -> None:
    assert Hard(HiddenProbe("nowhere"), 2).needs_states
    assert not Hard(PreviousToken("nowhere"), 2).needs_states
