"""The correction that a running text gives: the price of missing experts follows the text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specfit.core.backend import Verification
from specfit.core.policy import Outcome
from specfit.core.selection import Prediction, Selection
from specfit.core.tree import DraftTree
from specfit.policies.correction import PRIOR_MISSES, Displacement, MissCorrection


def outcome(predicted: float, realised: int) -> Outcome:
    """A cycle with this many predicted and realised misses; the rest is not looked at."""
    tree = DraftTree.root(0)
    selection = replace(Selection.root_only(tree), prediction=Prediction(1.0, predicted, 1.0))
    empty, misses = np.zeros(0), np.array([realised])
    answer = Verification(
        np.zeros(1), np.zeros(1), empty, empty, empty, empty, misses, empty, 0.0, 0.0
    )
    return Outcome(None, selection, answer, (), ())  # type: ignore[arg-type]


def test_it_comes_to_what_is_realised() -> None:
    correction = MissCorrection(memory=0.9)
    for _ in range(200):
        correction.observe(outcome(correction.scale * 10.0, 15))
    prior = PRIOR_MISSES
    assert correction.scale == pytest.approx((150 + prior) / (100 + prior), rel=1e-3)


def test_memory_of_one_never_corrects() -> None:
    correction = MissCorrection(memory=1.0)
    correction.observe(outcome(10.0, 100))
    assert correction.scale == 1.0


def passed(copies: int, evictions: int) -> Verification:
    """A pass with this many copies and evictions; the rest is not looked at."""
    answer = outcome(0.0, copies).verification
    return replace(answer, num_evictions=np.array([evictions]))


def test_the_share_of_copies_that_displace_an_expert() -> None:
    displacement = Displacement(memory=0.5)
    assert displacement.share == 1.0
    displacement.observe(passed(0, 0))
    assert displacement.share == 1.0  # no copy says anything
    displacement.observe(passed(4, 0))
    assert displacement.share == 0.0
    displacement.observe(passed(2, 2))
    assert displacement.share == pytest.approx(2 / (2 + 0.5 * 4))
