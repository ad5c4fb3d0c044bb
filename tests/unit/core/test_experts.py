"""Residency, observed routing, and the history of both."""

from __future__ import annotations

import numpy as np
import pytest

from specfit.core.errors import InvalidInputError
from specfit.core.experts import ExpertCoverage, Residency
from specfit.core.history import NEVER, RoutingHistory
from specfit.testing.examples import example_geometry

GEOMETRY = example_geometry(num_layers=2, num_experts=5, experts_per_token=2)


def test_residency_of_everything_and_of_nothing() -> None:
    assert Residency.everything(GEOMETRY).mask.shape == (2, 5)
    assert Residency.everything(GEOMETRY).mask.all()
    assert not Residency.nothing(GEOMETRY).mask.any()


def test_coverage_is_a_mask_and_a_union() -> None:
    routing = np.array([[[0, 1], [2, 3]], [[1, 4], [2, 2]]], np.int16)
    coverage = ExpertCoverage(routing, num_experts=5)
    assert coverage.mask.shape == (2, 2, 5)
    assert np.flatnonzero(coverage.mask[1, 0]).tolist() == [1, 4]
    assert coverage.mask[1, 1].sum() == 1, "a repeated id counts once"
    assert np.flatnonzero(coverage.union(np.array([True, True]))[0]).tolist() == [0, 1, 4]
    assert np.flatnonzero(coverage.union(np.array([1]))[0]).tolist() == [1, 4]


@pytest.mark.parametrize("expert", [-1, 5])
def test_an_expert_that_does_not_exist_is_refused(expert: int) -> None:
    routing = np.array([[[0, expert]]], np.int16)
    with pytest.raises(InvalidInputError, match=rf"routing\[0, 0, 1\] = {expert}, but .* 0 to 4"):
        ExpertCoverage(routing, num_experts=5)


def test_ages_count_committed_tokens_since_the_last_use() -> None:
    history = RoutingHistory(GEOMETRY)
    assert (history.ages == NEVER).all()
    history.append(np.array([[[0, 1], [0, 1]], [[1, 2], [3, 4]]], np.int16))
    assert history.ages[0].tolist() == [1, 0, 0, NEVER, NEVER]
    assert history.ages[1].tolist() == [1, 1, NEVER, 0, 0]
    history.append(np.array([[[0, 0], [3, 3]]], np.int16))
    assert history.ages[0].tolist() == [0, 1, 1, NEVER, NEVER]


def test_ages_are_a_snapshot() -> None:
    history = RoutingHistory(GEOMETRY)
    history.append(np.zeros((1, 2, 2), np.int16))
    before = history.ages
    history.append(np.ones((1, 2, 2), np.int16))
    assert before[0, 0] == 0


def test_a_snapshot_does_not_grow() -> None:
    history = RoutingHistory(GEOMETRY)
    history.append(np.zeros((1, 2, 2), np.int16))
    snapshot = history.snapshot()
    history.append(np.ones((3, 2, 2), np.int16))
    assert snapshot.ages[:, :2].tolist() == [[0, NEVER]] * 2
    assert history.ages[:, :2].tolist() == [[3, 0]] * 2
