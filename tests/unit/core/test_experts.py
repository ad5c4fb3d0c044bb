"""Residency, observed routing, and the history of both."""

from __future__ import annotations

import numpy as np
import pytest

from specfit.core.errors import InvalidInputError
from specfit.core.experts import ExpertCoverage, ExpertProbs, Residency
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
    assert history.ages[0].tolist() == [1, 0, 0, NEVER + 2, NEVER + 2]
    assert history.ages[1].tolist() == [1, 1, NEVER + 2, 0, 0]
    history.append(np.array([[[0, 0], [3, 3]]], np.int16))
    assert history.ages[0].tolist() == [0, 1, 1, NEVER + 3, NEVER + 3]


def test_an_expert_that_rejected_tokens_did_not_need_either_ages_by_them_too() -> None:
    history = RoutingHistory(GEOMETRY)
    committed = np.array([[[0, 1], [0, 1]]], np.int16)
    history.append(committed, rejected=np.array([[[1, 2], [0, 1]], [[2, 2], [4, 4]]], np.int16))
    assert history.ages[0].tolist() == [0, 0, NEVER + 1, NEVER + 3, NEVER + 3]
    assert history.ages[1].tolist() == [0, 0, NEVER + 3, NEVER + 3, NEVER + 1]
    before = history.snapshot()
    history.append(committed, rejected=np.array([[[3, 3], [2, 2]]], np.int16))
    assert history.ages[0].tolist() == [0, 0, NEVER + 2, NEVER + 2, NEVER + 5]
    assert before.ages[0].tolist() == [0, 0, NEVER + 1, NEVER + 3, NEVER + 3]
    history.append(np.array([[[4, 4], [3, 3]]], np.int16))
    assert history.ages[0].tolist() == [1, 1, NEVER + 3, NEVER + 3, 0]


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
    assert snapshot.ages[:, :2].tolist() == [[0, NEVER + 1]] * 2
    assert history.ages[:, :2].tolist() == [[3, 0]] * 2


def test_an_expert_new_to_a_path_is_less_likely_the_longer_the_path() -> None:
    probs = np.array([[[0.0, 0.2, 1.0]]] * 4, np.float32)  # [N, L, E]
    depths = np.array([0, 1, 1, 3], np.int32)
    predicted = ExpertProbs(probs, "a predictor", novelty=0.5)
    found = predicted.given_path(depths)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found[:, 0, 1], [0.2, 0.12, 0.12, 0.2 * 0.3], rtol=1e-6)
    np.testing.assert_array_equal(found[:, 0, [0, 2]], probs[:, 0, [0, 2]])  # what is sure stays
    np.testing.assert_array_equal(predicted.given_path(depths, 2), found[2:])


def test_needs_are_independent_unless_the_predictor_says_otherwise() -> None:
    probs = np.array([[[0.25, 0.75]]] * 2, np.float32)
    found = ExpertProbs(probs, "a predictor").given_path(np.array([0, 1], np.int32))
    np.testing.assert_array_equal(found, probs)


@pytest.mark.parametrize("novelty", [-0.1, 1.5, float("nan")])
def test_a_novelty_that_is_no_share_is_refused(novelty: float) -> None:
    with pytest.raises(InvalidInputError, match="Guess's novelty must be from 0 to 1"):
        ExpertProbs(np.ones((1, 1, 2), np.float32), "Guess", novelty)
