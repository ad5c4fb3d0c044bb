"""The correction that a running text gives: the price of missing experts follows the text."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specfit.core.backend import Request, Verification
from specfit.core.experts import Residency
from specfit.core.policy import Outcome
from specfit.core.selection import Prediction, Selection
from specfit.core.tree import DraftTree
from specfit.policies import SpecFit
from specfit.policies.correction import PRIOR_MISSES, Displacement, MissCorrection
from specfit.testing.toy import toy_backend
from specfit.testing.worlds import run_toy


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


def look(displacement: Displacement, copies: int, num_resident: int) -> float:
    """A pass with this many copies, after which so many experts are resident."""
    displacement.observe(outcome(0.0, copies).verification)
    displacement.look(Residency(np.arange(20).reshape(2, 10) < num_resident))
    return displacement.share


def test_the_share_of_copies_that_add_nothing_to_what_is_resident() -> None:
    displacement = Displacement(memory=0.5)
    assert look(displacement, 4, 3) == 1.0  # what was there before is not known
    assert look(displacement, 0, 3) == 1.0  # no copy says anything
    assert look(displacement, 4, 7) == 0.0
    assert look(displacement, 2, 7) == pytest.approx(2 / (2 + 0.5 * 4))


def test_a_cache_that_keeps_nothing_spares_nothing() -> None:
    """It evicts no one, yet its copies are lost, and charged in full."""
    policy = SpecFit()
    result = run_toy(policy, toy_backend("none"), Request((11, 7, 5), 40))
    assert len(result.cycles) > 3
    assert policy.lost == 1.0


def test_a_cache_that_fills_spares_more_than_a_full_one() -> None:
    lost = {}
    for spec in ("lru:100%", "lru:2"):
        policy = SpecFit()
        run_toy(policy, toy_backend(spec), Request((11, 7, 5), 6))
        lost[spec] = policy.lost
    assert lost["lru:100%"] == pytest.approx(1.0 - policy.spare_salvage)
    assert lost["lru:2"] == 1.0  # no more than one token's experts
