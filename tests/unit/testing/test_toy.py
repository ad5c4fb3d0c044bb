"""The toy backend: what makes it a fair double of a real one."""

from __future__ import annotations

import numpy as np
import pytest

from specfit.core.backend import Request
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan, DraftTree
from specfit.testing.examples import example_geometry
from specfit.testing.toy import PREFILL_CHUNK, ToyBackend, ToyModel, toy_backend


def drafted(backend: ToyBackend, plan: DraftPlan) -> DraftTree:
    tree = DraftTree.root(backend.start(Request((1, 2, 3), 20)).first_token)
    for _ in range(plan.depth):
        tree = tree.grow(backend.draft_level(plan, tree))
    return tree


@pytest.mark.parametrize(("depth", "top_k"), [(1, 3), (3, 1), (3, 3), (4, 2)])
def test_it_draws_the_pool_of_the_plan(depth: int, top_k: int) -> None:
    tree = drafted(toy_backend(), DraftPlan(depth, top_k, 99))
    assert len(tree) == 1 + top_k + (depth - 1) * top_k**2
    assert np.bincount(tree.depths).tolist() == [1, top_k, *[top_k**2] * (depth - 1)]


def test_a_small_vocabulary_limits_the_children() -> None:
    backend = toy_backend(geometry=example_geometry(vocab_size=4))
    tree = drafted(backend, DraftPlan(2, 10, 99))
    assert np.bincount(tree.depths).tolist() == [1, 4, 16]


def test_the_drafter_is_calibrated_when_the_target_is_greedy() -> None:
    """2,000 contexts; the target's token is a draw from the drafter's law, so is its rank."""
    model = ToyModel(example_geometry(), num_contexts=2_000)
    logits = model.draft_logits
    probs = np.exp(logits - logits.max(axis=1, keepdims=True))
    probs /= probs.sum(axis=1, keepdims=True)
    best, target = logits.argmax(axis=1), model.target_logits.argmax(axis=1)
    expected = probs[np.arange(2_000), best].mean()
    assert (best == target).mean() == pytest.approx(expected, abs=4 * 0.5 / np.sqrt(2_000))


def test_overconfidence_shows() -> None:
    plain, bold = (
        drafted(toy_backend(overconfidence=c), DraftPlan(1, 1, 9)).cond_probs[1] for c in (1.0, 2.0)
    )
    assert bold > plain


def test_routing_depends_on_token_layer_and_a_bit_of_context() -> None:
    model = ToyModel(example_geometry())
    states = np.arange(64, dtype=np.uint64) << np.uint64(32)
    routing = model.routing(np.full(64, 5), states)
    assert routing.shape == (64, 4, 2)
    assert len(np.unique(np.sort(routing[:, 0], axis=1), axis=0)) > 1, "the context counts"
    share = np.mean([(routing[0, 0, 0] == r[0]).any() for r in routing])
    assert share > 0.5, "the token counts more"
    other = model.routing(np.full(64, 6), states)
    assert not np.array_equal(routing, other)


def test_the_prompt_fills_the_cache_in_chunks() -> None:
    backend = toy_backend("lru:100%")
    prompt = tuple(range(20)) * 2
    prefill = backend.start(Request(prompt, 5))
    assert prefill.chunks == (PREFILL_CHUNK, PREFILL_CHUNK, 8)
    assert prefill.routing.shape == (40, 4, 2)
    used = np.zeros((4, 16), bool)
    np.put_along_axis(used, prefill.routing.transpose(1, 0, 2).reshape(4, -1).astype(int), True, 1)
    assert np.array_equal(backend.residency().mask, used)
    assert prefill.seconds == pytest.approx(backend.clock())


def test_of_several_verifications_the_last_counts_and_experts_move_each_time() -> None:
    backend = toy_backend("none")
    tree = drafted(backend, DraftPlan(2, 2, 9))
    whole = backend.verify(tree, Selection(tree, np.ones(len(tree), bool)))
    root = backend.verify(tree, Selection.root_only(tree))
    assert root.num_misses.sum() == 8, "4 layers of 2 experts, copied again"
    assert whole.target_tokens[0] == root.target_tokens[0]


def test_the_oracle_is_the_routing_of_the_verification() -> None:
    backend = toy_backend()
    tree = drafted(backend, DraftPlan(2, 3, 99))
    answer = backend.verify(tree, Selection(tree, np.ones(len(tree), bool)))
    assert np.array_equal(backend.node_routing(tree), answer.routing)


def test_it_says_that_its_seconds_are_simulated() -> None:
    said = toy_backend("lru:25%").describe()
    assert (said["seconds"], said["model"], said["capacity"]) == ("simulated", "synthetic", 4)
