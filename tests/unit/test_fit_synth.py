"""The fit of the synthetic model: its shares stay shares, and a slope needs room on one side."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.sim import fit_synth
from benchmarks.sim.fit_synth import SHARES, STEPS, Point, parameters_of, slope, stepped
from specfit.core.errors import InvalidInputError
from specfit.sim.synth.parameters import ROUTING

SHIPPED = np.array([getattr(ROUTING, name) for name in STEPS])


@pytest.fixture(params=[False, True])
def values(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> np.ndarray:
    """The shipped values, in the order of `STEPS` and in another."""
    if not request.param:
        return SHIPPED
    monkeypatch.setattr(fit_synth, "STEPS", dict(reversed(STEPS.items())))
    return SHIPPED[::-1].copy()


def test_the_shipped_values_are_the_shipped_parameters(values: np.ndarray) -> None:
    made = parameters_of(values)
    assert made.prompt_share == pytest.approx(ROUTING.prompt_share)
    assert all(getattr(made, name) == getattr(ROUTING, name) for name in STEPS)


def test_a_step_leaves_shares_shares(values: np.ndarray) -> None:
    """Each value is drawn upwards without end: all the steps go as far as they may."""
    names = list(fit_synth.STEPS)
    rising = np.eye(len(names))
    point = Point(values, (), np.full(len(names), -1e3))
    made = stepped(point, rising, trust=100.0)
    found = dict(zip(names, made.tolist(), strict=True))
    assert sum(found[name] for name in SHARES) <= 0.999 + 1e-9
    assert all(0 <= found[name] <= 1 for name in names if name.endswith("_share"))
    assert found["first_token_share"] == pytest.approx(1.0)
    assert found["other_scale"] == pytest.approx(1.2)


def squares(values: np.ndarray, tokens: object) -> Point | None:
    """Misses are the squares of the values; below 1 there is no room."""
    return None if values.min() < 1 else Point(values, (), values**2)


def test_a_slope_is_taken_where_there_is_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fit_synth, "measured", squares)
    point = Point(np.array([1.0, 2.0]), (), np.array([1.0, 4.0]))
    assert slope(point, np.array([0.5, 0.0]), []) == pytest.approx([2.5, 0.0])
    assert slope(point, np.array([0.0, 0.5]), []) == pytest.approx([0.0, 3.5])
    with pytest.raises(InvalidInputError, match="must have room"):
        slope(Point(point.values - 1, (), point.misses), np.array([0.5, 0.0]), [])
