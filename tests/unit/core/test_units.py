"""Sizes, rates and times: what is written is what is meant, and the rest is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specfit.core.cache import make_cache
from specfit.core.errors import InvalidInputError
from specfit.core.experts import ModelGeometry
from specfit.core.units import BYTES, bytes_of, bytes_per_s_of, quantity, seconds_of


def test_what_is_written_is_what_is_meant() -> None:
    assert bytes_of("1.5GiB") == 3 * 2**29
    assert bytes_of(" 16 GB ") == 16 * 10**9
    assert bytes_per_s_of("25GB/s") == 25e9
    assert bytes_per_s_of("2GiB/s") == 2 * 2**30
    assert seconds_of("20us") == pytest.approx(2e-5)
    assert quantity("16") == (16, "")
    assert quantity("25%") == (25, "%")


@given(st.integers(0, 10**6), st.sampled_from(sorted(BYTES)))
def test_a_bandwidth_is_a_size_a_second(number: int, unit: str) -> None:
    assert bytes_of(f"{number}{unit}") == number * BYTES[unit]
    assert bytes_per_s_of(f"{number}{unit}/s") == number * BYTES[unit]


@pytest.mark.parametrize("text", ["", "24", "GiB", "-1GiB", "1e3MB", "24gib", "24GiB/s", "8%"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="--gpu must be a size like 24GiB"):
        bytes_of(text, "--gpu")


@pytest.mark.parametrize("text", ["25", "25GB", "/s", "25/s", "GB/s", "25GB/ms"])
def test_what_is_no_bandwidth_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="25GB/s"):
        bytes_per_s_of(text)


@pytest.mark.parametrize("text", ["20", "us", "20min", "20us+"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(InvalidInputError, match="20us"):
        seconds_of(text)


@pytest.mark.parametrize("unit", sorted(BYTES))
def test_a_cache_takes_every_unit_of_a_size(unit: str) -> None:
    geometry = ModelGeometry(1, 64, 2, BYTES[unit], 8)
    assert make_cache(f"lru:16{unit}", geometry).capacity == 16
