"""Sampling settings, noise keyed by position, and the processed distribution."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specfit.core.errors import InvalidInputError
from specfit.core.noise import Sampling, gumbel_noise, processed_logits

LOGITS = np.log(np.array([[0.1, 0.4, 0.2, 0.3]]))


def law(sampling: Sampling, logits: np.ndarray = LOGITS) -> list[float]:
    weights = np.exp(processed_logits(logits, sampling)[0])
    return (weights / weights.sum()).tolist()  # type: ignore[no-any-return]


def test_noise_depends_on_key_and_position_only() -> None:
    noise = gumbel_noise(7, 123, 16)
    assert np.array_equal(noise, gumbel_noise(7, 123, 16))
    assert not np.array_equal(noise, gumbel_noise(7, 124, 16))
    assert not np.array_equal(noise, gumbel_noise(8, 123, 16))


def test_noise_is_pinned_so_that_recorded_text_stays_the_same() -> None:
    assert gumbel_noise(0, 0, 3) == pytest.approx([4.45554955, 1.28562640, 2.13590874], abs=1e-8)


def test_greedy_logits_are_left_alone() -> None:
    assert processed_logits(LOGITS, Sampling()) is LOGITS


@pytest.mark.parametrize(
    ("sampling", "expected"),
    [
        (Sampling(1.0), [0.1, 0.4, 0.2, 0.3]),
        (Sampling(0.5), [1 / 30, 16 / 30, 4 / 30, 9 / 30]),
        (Sampling(1.0, top_k=2), [0, 4 / 7, 0, 3 / 7]),
        (Sampling(1.0, top_k=9), [0.1, 0.4, 0.2, 0.3]),
        (Sampling(1.0, top_p=0.39), [0, 1, 0, 0]),
        (Sampling(1.0, top_p=0.41), [0, 4 / 7, 0, 3 / 7]),
        (Sampling(1.0, top_k=2, top_p=0.5), [0, 1, 0, 0]),
    ],
)
def test_temperature_then_top_k_then_top_p(sampling: Sampling, expected: list[float]) -> None:
    assert law(sampling) == pytest.approx(expected)


def test_of_equal_logits_the_lower_id_is_kept() -> None:
    assert law(Sampling(1.0, top_k=2), np.zeros((1, 4))) == [0.5, 0.5, 0, 0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"temperature": -0.1}, r"temperature must be 0 \(greedy\) or more; got -0.1"),
        ({"temperature": float("nan")}, r"temperature must be"),
        ({"top_k": -1}, r"top_k must be 0 \(all\) or more; got -1"),
        ({"top_p": 0.0}, r"top_p must be above 0 and at most 1; got 0"),
        ({"top_p": 1.1}, r"top_p must be above 0"),
        ({"noise_key": -1}, r"noise_key must be 0 to"),
    ],
)
def test_settings_out_of_range_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        Sampling(**settings)
