"""The fit recovers what synthetic acceptance was drawn from, by depth, rank and probability."""

import numpy as np
import pytest

from specfit.core.errors import InvalidInputError
from specfit.core.tree import DraftTree
from specfit.policies.fitting.acceptance_curves import AcceptanceSample, fit_acceptance_curves


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
        AcceptanceSample(np.zeros(1, np.int32), np.zeros(1, np.int32), -one, one, one > 0)
