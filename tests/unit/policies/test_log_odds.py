"""The log odds against their definition, and what every floor promises."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfit.policies.log_odds import (
    DRAFT_FLOOR,
    FIT_FLOOR,
    POOL_FLOOR,
    PROBE_FLOOR,
    log_odds,
    log_odds_of,
)

FLOORS = (DRAFT_FLOOR, FIT_FLOOR, POOL_FLOOR, PROBE_FLOOR)
LARGEST = {DRAFT_FLOOR: 20.8, FIT_FLOOR: 13.9, POOL_FLOOR: 9.3, PROBE_FLOOR: 6.3}


@given(st.floats(0.01, 0.99), st.sampled_from(FLOORS))
def test_inside_the_floors_it_is_the_definition(prob: float, floor: float) -> None:
    odds = log_odds_of(prob, floor)
    assert odds == pytest.approx(math.log(prob) - math.log1p(-prob), abs=1e-9)
    assert log_odds_of(1 - prob, floor) == pytest.approx(-odds, abs=1e-9)


@pytest.mark.parametrize("floor", FLOORS)
def test_beyond_the_floors_it_stays_at_the_bound_that_is_said(floor: float) -> None:
    bound = float(log_odds_of(1 - floor, floor))
    assert LARGEST[floor] - 0.1 < bound < LARGEST[floor]
    found = log_odds(np.array([-0.5, 0.0, floor / 2, 1 - floor / 2, 1.0, 1.5]), floor)
    np.testing.assert_allclose(found, [-bound] * 3 + [bound] * 3, atol=1e-6)


@given(st.lists(st.floats(-0.5, 1.5), max_size=20), st.sampled_from(FLOORS))
def test_log_odds_never_fall_as_probabilities_rise(probs: list[float], floor: float) -> None:
    found = log_odds(np.sort(np.array(probs, np.float64)), floor)
    assert np.isfinite(found).all()
    assert (np.diff(found) >= 0).all()


def test_arrays_of_any_shape_type_and_order_give_the_same_numbers() -> None:
    probs = np.random.default_rng(0).random((3, 4, 5)).astype(np.float32)
    expected = [[[log_odds_of(float(p), POOL_FLOOR) for p in b] for b in a] for a in probs]
    found = log_odds(probs, POOL_FLOOR)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected)
    np.testing.assert_allclose(log_odds(probs.T, POOL_FLOOR), np.transpose(expected))
    assert log_odds(probs[:0], POOL_FLOOR).shape == (0, 4, 5)


def test_only_a_draft_probability_of_one_is_moved_at_the_upper_end() -> None:
    below = np.nextafter(np.float32(1), np.float32(0))
    odds = log_odds(np.array([below, 1], np.float32), DRAFT_FLOOR)
    assert odds[0] == pytest.approx(math.log(float(below)) - math.log1p(-float(below)))
    assert odds[0] < odds[1] == pytest.approx(math.log(1 / DRAFT_FLOOR), rel=1e-6)
