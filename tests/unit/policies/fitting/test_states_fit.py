"""Fits on hidden states: against plain least squares, and on worlds whose answer is known."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError
from specfit.core.experts import ModelGeometry
from specfit.core.observed import ObservedDraft, ObservedText
from specfit.core.tree import DraftTree
from specfit.policies.fitting.scored import Examples, likeliest
from specfit.policies.fitting.scores import judge_experts
from specfit.policies.fitting.states import (
    StateExamples,
    fit_hidden_probe,
    fit_target_routers,
    low_rank_ridge,
)
from specfit.policies.predictors import HiddenProbe, TargetRouters
from specfit.policies.predictors.states import unit_states

GEOMETRY = ModelGeometry(2, 8, 2, 1000, 16)
WIDTH = 6


def slow_ridge(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    counts: NDArray[np.int64],
    penalty: float,
    rank: int,
) -> NDArray[np.float64]:
    """Return the predictions for x: each example as often as it counts, one more row a weight.

    The best map of a rank is the best of all, projected on the directions in which the predictions
    for those rows vary most.
    """
    rows, answers = np.repeat(x, counts, axis=0), np.repeat(y, counts, axis=0)
    x_mean, y_mean = rows.mean(axis=0), answers.mean(axis=0)
    more = np.sqrt(penalty) * np.eye(x.shape[1])
    a = np.concatenate([rows - x_mean, more])
    b = np.concatenate([answers - y_mean, np.zeros((x.shape[1], y.shape[1]))])
    full = np.linalg.lstsq(a, b, rcond=None)[0]
    _, _, directions = np.linalg.svd(a @ full, full_matrices=False)
    return np.asarray((x - x_mean) @ full @ directions[:rank].T @ directions[:rank] + y_mean)


@pytest.mark.parametrize("rank", [1, 3, 64])
@pytest.mark.parametrize("penalty", [0.1, 30.0])
def test_the_map_is_that_of_plain_least_squares(penalty: float, rank: int) -> None:
    generator = np.random.default_rng(rank)
    x, noise = generator.standard_normal((40, WIDTH)), generator.standard_normal((40, 9))
    y = x @ generator.standard_normal((WIDTH, 9)) + noise
    counts = generator.integers(1, 5, 40)
    down, up, offset = low_rank_ridge(x, y, counts.astype(float), penalty, rank)
    assert down.shape[1] == min(rank, WIDTH)
    expected = slow_ridge(x, y, counts, penalty, rank)
    np.testing.assert_allclose(x @ down @ up + offset, expected, atol=1e-9)


def test_what_makes_the_examples_likeliest_is_taken() -> None:
    """The first of two that say the same; scores that tell needed experts apart beat any other."""
    generator = np.random.default_rng(2)
    needs = (generator.random((30, 2, 8)) < 0.3).astype(np.float64)
    examples = Examples(np.ones(30, np.int64), np.ones(30), needs)
    told = {"noise": generator.standard_normal(needs.shape), "truth": needs, "again": needs}
    slopes, _, best = likeliest(told, examples, lambda name: told[name])
    assert best == "truth"
    assert (slopes[1] > 2).all()


def routers() -> NDArray[np.float32]:
    shape = (GEOMETRY.num_layers, GEOMETRY.num_experts, WIDTH)
    return np.random.default_rng(7).standard_normal(shape, np.float32)


def observed(seed: int, depth: int = 2) -> ObservedText:
    """Return a text whose nodes need the experts that the routers like best in their states."""
    generator = np.random.default_rng(seed)
    parents = np.array([-1, 0, 0, *([1, 1, 2] if depth > 1 else [])], np.int32)
    drafts = []
    for root in range(1, 30):
        above = generator.standard_normal((3, WIDTH)).astype(np.float32)
        states = np.concatenate([np.zeros((1, WIDTH), np.float32), above[parents[1:]]])
        bare = DraftTree.from_arrays(parents, np.where(parents < 0, 1.0, 0.5))
        tree = replace(bare, states=states)
        logits = np.einsum("nd,led->nle", states, routers())
        needed = np.argsort(-logits, axis=2)[:, :, :2].astype(np.int16)
        nodes = np.arange(len(tree))
        drafts.append(ObservedDraft(root, tree, nodes, np.zeros(len(tree), np.int64), needed))
    routing = generator.random((30, 2, 8)).argsort(axis=2)[:, :, :2].astype(np.int16)
    return ObservedText(tuple(range(30)), routing, tuple(drafts))


def test_an_example_is_a_node_with_what_its_children_needed() -> None:
    (draft,) = observed(0).drafts[:1]
    seen = ObservedDraft(  # the target has not run node 4, the second child of node 1
        draft.root,
        draft.tree,
        draft.nodes[[0, 1, 2, 3, 5]],
        draft.target_tokens[[0, 1, 2, 3, 5]],
        draft.routing[[0, 1, 2, 3, 5]],
    )
    text = ObservedText((1, 2), observed(0).routing, (seen,))
    examples = StateExamples.of([text], GEOMETRY)
    assert examples.slots.tolist() == [1, 2, 2]
    assert examples.num_nodes.tolist() == [2, 1, 1]
    assert draft.tree.states is not None
    expected = unit_states(draft.tree.states[[1, 3, 5]])
    np.testing.assert_allclose(examples.states, expected)
    for row, children in enumerate([(1, 2), (3,), (5,)]):
        for layer in range(GEOMETRY.num_layers):
            needed = np.bincount(draft.routing[list(children), layer].ravel(), minlength=8)
            assert examples.needs[row, layer].tolist() == needed.tolist()


def test_both_find_experts_that_follow_from_states(tmp_path: Path) -> None:
    """Of new texts: the true routers nearly all, a linear map most, chance a quarter."""
    train, held = [observed(seed) for seed in range(12)], [observed(seed) for seed in (20, 21, 22)]
    hidden = fit_hidden_probe(train, held, GEOMETRY, "f" * 64)
    hidden.save(HiddenProbe.file, tmp_path, {})
    matched = fit_target_routers(train, GEOMETRY, "f" * 64, routers())
    matched.save(TargetRouters.file, tmp_path, {})
    new = [observed(30), observed(31)]
    for kind, least in ((HiddenProbe, 0.7), (TargetRouters, 0.99)):
        judged = judge_experts(kind(str(tmp_path)), new, GEOMETRY).drafted()
        assert judged.recall().mean() > least
        assert judged.whole().ece < 0.1


def test_depths_that_were_not_seen_take_over_the_last_that_was() -> None:
    fit = fit_target_routers([observed(0, depth=1)], GEOMETRY, "f" * 64, routers())
    assert (fit.slopes[1:] == fit.slopes[1]).all()
    assert (fit.slopes[1] > 0).all()


@pytest.mark.parametrize("shape", [(2, 8, WIDTH + 1), (3, 8, WIDTH), (2, 4, WIDTH)])
def test_routers_of_another_model_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidInputError, match=r"must be \[L, E, D\] = \[2, 8, 6\]"):
        fit_target_routers([observed(0)], GEOMETRY, "", np.zeros(shape, np.float32))


def test_texts_without_drafts_or_states_are_refused() -> None:
    text = observed(0)
    with pytest.raises(InvalidInputError, match="fitted on drafted nodes; got none"):
        StateExamples.of([ObservedText(text.tokens, text.routing, ())], GEOMETRY)
    parents = np.array([-1, 0], np.int32)
    tree = DraftTree.from_arrays(parents, np.array([1.0, 0.5]))
    draft = ObservedDraft(1, tree, np.arange(2), np.zeros(2, np.int64), text.drafts[0].routing[:2])
    with pytest.raises(InvalidInputError, match="specfit record --states"):
        StateExamples.of([ObservedText(text.tokens, text.routing, (draft,))], GEOMETRY)
