from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specfit.core.errors import InvalidInputError
from specfit.core.tree import DraftTree
from specfit.policies.acceptance import DepthRank, Identity
from specfit.policies.acceptance._kernels import NUM_LINES, accept_probs
from specfit.policies.acceptance.acceptance_curves import CURVES_FILE, AcceptanceCurves
from tests.unit.policies.acceptance.repeats import indifferent


def make_curves(weights: np.ndarray | None = None) -> AcceptanceCurves:
    """Two temperatures, two depths, two ranks; `weights` (default: the logit of q) for both."""
    if weights is None:
        weights = np.zeros((2, 2, 4))
        weights[..., 1], weights[..., 2] = 1.0, -1.0
    continuations = np.array([[[0.6, 0.8], [0.5, 0.7]], [[0.4, 0.5], [0.3, 0.4]]])
    return AcceptanceCurves(
        "0" * 64,
        np.array([0.0, 1.0]),
        np.stack([weights] * 2),
        continuations,
        *indifferent(continuations),
    )


def make_tree() -> DraftTree:
    return DraftTree.from_arrays(
        np.array([-1, 0, 0, 1, 1, 2], np.int32), np.array([1, 0.6, 0.3, 0.5, 0.4, 0.9])
    )


def test_the_logit_of_q_gives_q_back() -> None:
    tree = make_tree()
    np.testing.assert_allclose(make_curves().at(0.0).accept_probs(tree), tree.cond_probs, rtol=1e-6)


def test_weights_are_chosen_by_depth_and_rank() -> None:
    weights = np.zeros((2, 2, 4))
    weights[..., 0] = [[0.0, -1.0], [-2.0, -3.0]]  # constants of (depth, rank)
    found = make_curves(weights).at(0.0).accept_probs(make_tree())
    expected = 1 / (1 + np.exp(-np.array([0.0, -1.0, -2.0, -3.0, -2.0])))
    np.testing.assert_allclose(found[1:], expected)
    assert found[0] == 1.0


def test_siblings_sum_to_at_most_one_and_later_ones_yield() -> None:
    weights = np.zeros((2, 2, 4))
    weights[..., 0] = 1.5  # 0.82 each
    found = make_curves(weights).at(0.0).accept_probs(make_tree())
    first = 1 / (1 + np.exp(-1.5))
    np.testing.assert_allclose(found[[1, 3]], first)
    np.testing.assert_allclose(found[[2, 4]], 1 - first)


def test_a_node_keeps_its_value_when_the_tree_grows() -> None:
    curves, tree = make_curves().at(0.0), make_tree()
    part = DraftTree(
        tree.tokens[:4], tree.parents[:4], tree.log_probs[:4], tree.ranks[:4], tree.entropies[:4]
    )
    np.testing.assert_array_equal(curves.accept_probs(part), curves.accept_probs(tree)[:4])


def test_kernel_and_its_python_twin_agree() -> None:
    tree, weights = make_tree(), make_curves().weights[0]
    repeats = np.array([0, 3, -3, 0, -1, 8], np.int8)
    lines = np.random.default_rng(0).random((NUM_LINES, 2))
    found = np.empty((2, len(tree)))
    for kernel, out in ((accept_probs, found[0]), (accept_probs.py_func, found[1])):
        kernel(
            tree.parents, tree.log_probs, tree.ranks, tree.entropies, weights, repeats, lines,
            0.3, out,
        )  # fmt: skip
    np.testing.assert_allclose(found[0], found[1], rtol=1e-12)


@pytest.mark.parametrize("log_prob", [0.0, -np.inf, -200.0])
def test_certain_and_impossible_nodes_stay_probabilities(log_prob: float) -> None:
    tree = DraftTree.from_arrays(np.array([-1, 0], np.int32), np.exp([0.0, log_prob]))
    found = make_curves().at(0.0).accept_probs(tree)
    assert 0 <= found[1] <= 1


@pytest.mark.parametrize(
    ("temperature", "expected"), [(0.0, 0.6), (0.25, 0.55), (1.0, 0.4), (3.0, 0.4)]
)
def test_temperatures_are_interpolated_and_held_beyond_the_last(
    temperature: float, expected: float
) -> None:
    assert make_curves().at(temperature).continuation(1, 1) == pytest.approx(expected)


def test_continuations_beyond_the_fitted_ones_are_the_last_ones() -> None:
    curves = make_curves().at(0.0)
    assert curves.continuation(1, 2) == 0.8
    assert curves.continuation(9, 9) == 0.7


def test_what_was_saved_is_what_is_loaded(tmp_path: Path) -> None:
    curves = make_curves()
    curves.save(CURVES_FILE, tmp_path, {"cycles": 3})
    loaded = AcceptanceCurves.load(CURVES_FILE, tmp_path)
    assert loaded.fitted_on == curves.fitted_on
    for name in CURVES_FILE.tensors:
        np.testing.assert_array_equal(getattr(loaded, name), getattr(curves, name))
    model, tree = DepthRank(str(tmp_path), temperature=0.5), make_tree()
    np.testing.assert_array_equal(model.calibrate(tree), curves.at(0.5).accept_probs(tree))
    assert model.continuation(2, 1) == pytest.approx(0.4)


def test_falling_continuations_are_refused() -> None:
    curves = make_curves()
    with pytest.raises(InvalidInputError, match="continuations"):
        replace(curves, continuations=curves.continuations[:, :, ::-1].copy())


def test_a_line_that_turns_the_drafter_around_is_refused() -> None:
    curves = make_curves()
    with pytest.raises(InvalidInputError, match="lines"):
        replace(curves, lines=-curves.lines)


def test_the_lines_move_the_log_odds_of_what_the_text_speaks_of() -> None:
    """After 7 8, then 7: the child 8 is what followed 7; the other child is not."""
    curves = make_curves()
    lines = curves.lines.copy()
    lines[:, 1, 0], lines[:, 1 + 8, 0] = 1.0, -2.0  # a run of one token for, and against
    tree = DraftTree.from_arrays(
        np.array([-1, 0, 0], np.int32), np.array([1, 0.5, 0.3]), np.array([7, 8, 9])
    )
    curves = replace(curves, lines=lines).at(0.0)
    found = curves.probs_after(np.array([7, 8]), tree, 0.0)
    odds = found[1:] / (1 - found[1:])
    np.testing.assert_allclose(odds, [np.exp(1.0), 3 / 7 * np.exp(-2.0)], rtol=1e-6)
    unseen = curves.probs_after(np.array([5, 8]), tree, 0.0)
    np.testing.assert_array_equal(unseen, curves.accept_probs(tree))


def test_continuations_go_by_the_run_at_the_root() -> None:
    curves = make_curves()
    repeated = curves.repeated_continuations.copy()
    repeated[:, 4] = 0.9
    curves = replace(curves, repeated_continuations=repeated).at(0.0)
    assert curves.continuation_after(4, 1, 1, 0.0) == pytest.approx(0.9)
    assert curves.continuation_after(3, 1, 1, 0.0) == pytest.approx(0.6)
    assert curves.continuation_after(3, 1, 1, np.log(2.0)) == pytest.approx(0.75)


@pytest.mark.parametrize("last", [-1.0, np.inf, np.nan])
def test_temperatures_that_no_target_has_are_refused(last: float) -> None:
    curves = make_curves()
    temperatures = curves.temperatures.copy()
    temperatures[-1] = last
    with pytest.raises(InvalidInputError, match="temperatures"):
        replace(curves, temperatures=temperatures)


def test_identity_takes_the_drafter_at_its_word() -> None:
    tree = make_tree()
    np.testing.assert_array_equal(Identity().calibrate(tree), tree.cond_probs)
    assert Identity().continuation(3, 4) == 1.0
