"""The fit recovers what synthetic acceptance was drawn from, by depth, rank and probability."""

from dataclasses import replace

import numpy as np
import pytest

from specfit.core.errors import InvalidInputError
from specfit.core.tree import DraftTree
from specfit.policies.fitting.acceptance_curves import (
    AcceptanceSample,
    LevelLineWarning,
    fit_acceptance_curves,
)


def draw_sample(key: int, num_parents: int = 20_000, overconfidence: float = 2.0):
    """Three children a parent; the target takes child r with probability q_r ** overconfidence."""
    rng = np.random.default_rng(key)
    probs = -np.sort(-rng.dirichlet([0.6] * 4, num_parents)[:, :3], axis=1)
    laws = np.cumsum(probs**overconfidence, axis=1)
    taken = (rng.random(num_parents)[:, None] > laws).sum(axis=1)  # 3: none of them
    return AcceptanceSample(
        depths=np.repeat(rng.integers(1, 4, num_parents), 3).astype(np.int32),
        ranks=np.tile(np.arange(3, dtype=np.int32), num_parents),
        log_probs=np.log(np.maximum(probs, 1e-8)).ravel().astype(np.float32),
        entropies=np.zeros(3 * num_parents, np.float32),
        accepted=(taken[:, None] == np.arange(3)).ravel(),
        repeats=np.zeros(3 * num_parents, np.int8),
        runs=np.zeros(3 * num_parents, np.int8),
        looping=np.zeros(3 * num_parents, bool),
    )


def test_overconfident_probabilities_are_corrected() -> None:
    curves = fit_acceptance_curves({0.0: draw_sample(1)}, "0" * 64).at(0.0)
    q = np.array([0.9, 0.6, 0.3])
    for rank, prob in enumerate(q):
        parents = np.array([-1, *[0] * (rank + 1)], np.int32)
        siblings = np.append(np.full(rank, 1e-6), prob)
        tree = DraftTree.from_arrays(parents, np.append(1.0, siblings))
        assert curves.accept_probs(tree)[-1] == pytest.approx(prob**2, abs=0.06)


def test_predicted_and_realised_acceptance_agree_by_depth_and_rank() -> None:
    curves = fit_acceptance_curves({0.0: draw_sample(1)}, "0" * 64).at(0.0)
    sample = draw_sample(2)
    for depth in (1, 2, 3):
        for rank in (0, 1, 2):
            cell = (sample.depths == depth) & (sample.ranks == rank)
            q = sample.log_probs[cell].astype(np.float64)
            w = curves.weights[0, depth - 1, rank]
            scores = w[0] + w[1] * q + w[2] * np.log(-np.expm1(np.minimum(q, -1e-9)))
            predicted = 1 / (1 + np.exp(-scores))
            assert predicted.mean() == pytest.approx(sample.accepted[cell].mean(), abs=0.02)


def test_continuations_are_the_share_of_parents_with_a_hit() -> None:
    sample = draw_sample(1)
    curves = fit_acceptance_curves({0.0: sample}, "0" * 64)
    hit = sample.accepted.reshape(-1, 3)
    for top_k in (1, 2, 3):
        share = hit[:, :top_k].any(axis=1).mean()
        assert curves.at(0.0).continuation(1, top_k) == pytest.approx(share, abs=0.02)
    assert curves.at(0.0).continuation(1, 10) == curves.at(0.0).continuation(1, 3)


def test_every_temperature_gets_its_own_curves() -> None:
    curves = fit_acceptance_curves(
        {1.0: draw_sample(1, overconfidence=3.0), 0.0: draw_sample(2, overconfidence=1.0)}, "0" * 64
    )
    np.testing.assert_array_equal(curves.temperatures, [0.0, 1.0])
    assert curves.at(0.0).continuation(1, 3) > curves.at(1.0).continuation(1, 3)


def test_a_root_in_the_sample_is_refused() -> None:
    one = np.ones(1, np.float32)
    with pytest.raises(InvalidInputError, match="depth is 1 or more"):
        none = np.zeros(1, np.int8)
        AcceptanceSample(none, none, -one, one, one > 0, none, none, none > 0)


def test_lines_find_what_repetition_is_worth_on_looping_text_too() -> None:
    """Half of all parents have a run of three tokens for child 0, which is then always right."""
    usual = draw_sample(1)
    first = usual.ranks == 0
    told = np.repeat(np.random.default_rng(3).random(len(first) // 3) < 0.5, 3)
    sample = replace(
        usual,
        repeats=np.where(told, np.where(first, 3, -3), 0).astype(np.int8),
        runs=np.where(told, 3, 0).astype(np.int8),
        accepted=np.where(told, first, usual.accepted),
        looping=told,
    )
    with pytest.warns(LevelLineWarning, match="nodes with a run of 3 for them"):
        curves = fit_acceptance_curves({0.0: sample}, "0" * 64).at(0.0)
    alone = fit_acceptance_curves({0.0: usual.where(~told)}, "0" * 64).at(0.0)
    np.testing.assert_array_equal(curves.weights, alone.weights)
    np.testing.assert_array_equal(curves.continuations, alone.continuations)
    tree = DraftTree.from_arrays(
        np.array([-1, 0, 0], np.int32), np.array([1, 0.5, 0.3]), np.array([3, 4, 5])
    )
    found = curves.probs_after(np.array([1, 2, 3, 4, 1, 2]), tree, 0.0)
    assert found[1] > 0.97
    assert found[2] < 0.03
    np.testing.assert_allclose(
        curves.probs_after(np.array([9]), tree, 0.0), curves.accept_probs(tree), atol=0.02
    )
    assert curves.continuation_after(3, 1, 1, 0.0) > 0.95
    chance = curves.continuation(1, 1)
    assert curves.continuation_after(0, 1, 1, 0.0) == pytest.approx(chance, abs=0.02)
    assert curves.continuation_after(7, 1, 1, 0.0) == pytest.approx(chance)


def test_a_line_that_would_fall_is_fitted_level_and_said() -> None:
    """After a run of two for them, the likelier half of the nodes is accepted less often."""
    usual = draw_sample(1)
    told = usual.ranks == 0
    likely = usual.log_probs > np.median(usual.log_probs[told])
    rare = np.random.default_rng(5).random(len(told)) < np.where(likely, 0.2, 0.6)
    sample = replace(
        usual,
        repeats=np.where(told, 2, 0).astype(np.int8),
        accepted=np.where(told, rare, usual.accepted),
        looping=told,
    )
    with pytest.warns(LevelLineWarning, match=r"20000 nodes with a run of 2 for them.*slope -0"):
        curves = fit_acceptance_curves({0.0: sample}, "0" * 64)
    constant, slope = curves.lines[0, 2]
    assert slope == 0.0
    assert 1 / (1 + np.exp(-constant)) == pytest.approx(sample.accepted[told].mean(), abs=1e-3)
