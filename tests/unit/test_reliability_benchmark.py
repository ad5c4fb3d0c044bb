"""What chance alone gives: errors of right predictions, each outcome drawn once."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.reliability import chance, print_groups


def test_chance_is_the_error_of_predictions_that_are_right() -> None:
    """In one bin it is the distance of the share from p: on average sqrt(2 p (1 - p) / (pi n))."""
    alone = chance(np.full(400, 0.5), np.arange(400))
    assert alone.outcomes == 400
    assert alone.ece == pytest.approx(np.sqrt(0.5 / np.pi / 400), rel=0.25)
    assert alone.ece_95 == pytest.approx(1.96 * 0.5 / 20, rel=0.25)


def test_predictions_of_one_outcome_count_once() -> None:
    outcomes = np.arange(400)
    once = chance(np.full(400, 0.5), outcomes)
    again = chance(np.full(1600, 0.5), np.tile(outcomes * 7 - 3, 4))
    assert (again.outcomes, again.ece) == (400, once.ece)


def test_sure_predictions_leave_nothing_to_chance() -> None:
    assert chance(np.repeat([0.0, 1.0], 50), np.arange(100)).ece == 0.0


def test_each_group_is_shown_with_its_chance(capsys: pytest.CaptureFixture[str]) -> None:
    probs, happened = np.full(10, 0.5), np.arange(10) < 5
    found = print_groups(
        "t", ["a", "none", "b"], np.repeat([0, 2], 5), probs, probs, happened, np.arange(10)
    )
    assert set(found) == {"a", "b"}
    assert found["b"]["chance"]["outcomes"] == 5
    assert found["b"]["after"]["ece"] == 0.5
    assert "none" not in capsys.readouterr().out
