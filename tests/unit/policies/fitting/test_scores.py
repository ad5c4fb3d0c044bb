"""The scores of fitted inputs: by hand, and against a plain loop over observed drafts."""

from __future__ import annotations

import numpy as np
import pytest

from specfit.core.backend import Request
from specfit.core.observed import ObservedText
from specfit.core.tree import DraftPlan
from specfit.policies.acceptance import Identity
from specfit.policies.fitting.scores import (
    JudgedAcceptance,
    JudgedExperts,
    judge_acceptance,
    judge_draft,
    judge_experts,
    likeliest_experts,
    pooled,
)
from specfit.policies.predictors import Uniform
from specfit.sim.observe import observed_texts
from specfit.sim.record_positions import record_positions
from specfit.sim.trace import TraceReader, TraceWriter, metadata_of
from specfit.testing.toy import toy_backend

PLANS = (DraftPlan(3, 2, 64),)
GEOMETRY = toy_backend().geometry


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> list[ObservedText]:
    folder = tmp_path_factory.mktemp("toy") / "positions"
    backend = toy_backend()
    requests = tuple(Request(tuple(range(1, 10 + i)), 12) for i in range(2))
    with TraceWriter.create(folder, metadata_of(backend, "positions", PLANS)) as writer:
        record_positions(backend, requests, PLANS, writer)
    return list(observed_texts(TraceReader(folder)))


def judged() -> JudgedExperts:
    """Three nodes, the first a root; two layers, of whose four experts a node needs two."""
    probs = np.array(
        [
            [[0.9, 0.1, 0.6, 0.4], [0.5, 0.5, 0.5, 0.5]],
            [[0.9, 0.1, 0.6, 0.4], [0.0, 0.0, 1.0, 1.0]],
            [[0.1, 0.9, 0.4, 0.6], [1.0, 0.0, 0.0, 1.0]],
        ],
        np.float32,
    )
    needed = np.zeros(probs.shape, bool)
    for node, experts in enumerate([((0, 2), (2, 3)), ((0, 1), (2, 3)), ((0, 2), (0, 3))]):
        for layer, pair in enumerate(experts):
            needed[node, layer, list(pair)] = True
    return JudgedExperts(np.array([0, 1, 2], np.int32), probs, needed)


def test_recall_is_the_share_among_the_k_likeliest() -> None:
    """Of equal probabilities the lower ids count as likelier: 0 and 1 where 2 and 3 are needed."""
    assert judged().recall().tolist() == [[1.0, 0.0], [0.5, 1.0], [0.0, 1.0]]


def test_the_likeliest_experts_come_first_and_of_equal_ones_the_lower_ids() -> None:
    probs = np.array([[0.1, 0.4, 0.4, 0.2], [0.5, 0.5, 0.5, 0.5]])
    assert likeliest_experts(probs, 3).tolist() == [[1, 2, 3], [0, 1, 2]]


def test_roots_are_left_out_of_drafted_nodes() -> None:
    drafted = judged().drafted()
    assert drafted.depths.tolist() == [1, 2]
    assert drafted.recall().tolist() == judged().recall()[1:].tolist()


def test_layers_are_scored_apart_and_together() -> None:
    first, second = judged().drafted().by_layer()
    assert (second.ece, second.brier) == (0.0, 0.0)
    assert first.brier == pytest.approx((0.01 + 0.81 + 0.36 + 0.16 + 0.81 + 0.81 + 0.36 + 0.36) / 8)
    whole = judged().drafted().whole()
    assert whole.count == first.count + second.count == 16
    assert whole.brier == pytest.approx(first.brier / 2)


def test_depths_are_scored_apart_and_together() -> None:
    depths, ranks = np.array([1, 2, 1], np.int32), np.array([0, 0, 1], np.int32)
    found = JudgedAcceptance(
        depths, ranks, np.array([0.5, 1.0, 0.25]), np.array([True, True, False])
    )
    first, second = found.by_depth()[1], found.by_depth()[2]
    assert (first.count, first.predicted, first.realised) == (2, 0.375, 0.5)
    assert first.brier == pytest.approx((0.25 + 0.0625) / 2)
    assert (second.count, second.brier) == (1, 0.0)
    assert found.whole().brier == pytest.approx(0.3125 / 3)


def test_all_drafts_of_all_texts_are_judged(texts: list[ObservedText]) -> None:
    predictor = Uniform(GEOMETRY)
    parts = [
        judge_draft(predictor, draft, history, GEOMETRY)
        for text in texts
        for draft, history in text.histories(GEOMETRY)
    ]
    whole = judge_experts(predictor, texts, GEOMETRY)
    assert len(whole.depths) == sum(len(draft.nodes) for text in texts for draft in text.drafts)
    for name in ("depths", "probs", "needed"):
        joined = np.concatenate([getattr(part, name) for part in parts])
        np.testing.assert_array_equal(getattr(whole, name), joined)
        np.testing.assert_array_equal(getattr(pooled(parts), name), joined)
    assert (whole.needed.sum(axis=2) == GEOMETRY.experts_per_token).all()
    assert whole.whole().realised == pytest.approx(whole.whole().predicted)


def test_acceptance_is_judged_where_it_is_known(texts: list[ObservedText]) -> None:
    found = judge_acceptance(Identity(), texts)
    expected = []
    for draft in (draft for text in texts for draft in text.drafts):
        answers = dict(zip(draft.nodes.tolist(), draft.target_tokens.tolist(), strict=True))
        tree, path = draft.tree, {0}
        for node in range(1, len(tree)):
            parent = int(tree.parents[node])
            if parent in path and parent in answers:
                accepted = answers[parent] == tree.tokens[node]
                path |= {node} if accepted else set()
                expected.append((tree.depths[node], tree.cond_probs[node], accepted))
    depths, probs, accepted = (np.array(column) for column in zip(*expected, strict=True))
    assert len(expected) > 20
    np.testing.assert_array_equal(found.depths, depths)
    np.testing.assert_array_equal(found.probs, probs)
    np.testing.assert_array_equal(found.accepted, accepted)
