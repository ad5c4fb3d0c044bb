"""The drafter against a head without caches: levels, catching up, forgetting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from specfit.backends.eagle3 import Eagle3Drafter, Eagle3Head
from specfit.backends.eagle3_checkpoint import HeadCheckpoint
from specfit.backends.eagle3_compiled import CompiledHead
from specfit.backends.eagle3_compiled import make_head as suitable_head
from specfit.core.errors import BackendError
from specfit.core.tree import DraftPlan, DraftTree
from tests.unit.backends.models import (
    AUX_LAYERS,
    HEAD_CONFIG,
    D,
    V,
    head_tensors,
    make_head,
    target_config,
)
from tests.unit.backends.naive_head import path_log_probs

PLAN = DraftPlan(depth=3, top_k=3, max_nodes=64)
GENERATOR = torch.Generator().manual_seed(5)
EMBEDDING = torch.randn(V, D, generator=GENERATOR)
FEATURES = torch.randn(9, len(AUX_LAYERS) * D, generator=GENERATOR)
NEXT_TOKENS = [3, 14, 15, 92, 65, 35, 89, 79, 32]


def make_drafter(
    folder: Path,
    tensors: dict[str, torch.Tensor] | None = None,
    kind: type[Eagle3Head] = CompiledHead,
    **config: Any,
) -> Eagle3Drafter:
    make_head(folder, tensors, HEAD_CONFIG | config)
    return Eagle3Drafter(kind(HeadCheckpoint.load(folder, target_config()), EMBEDDING))


def draw(drafter: Eagle3Drafter, plan: DraftPlan = PLAN) -> DraftTree:
    tree = DraftTree.root(NEXT_TOKENS[-1])
    for _ in range(plan.depth):
        tree = tree.grow(drafter.draft_level(plan, tree))
    return tree


@pytest.fixture(params=[Eagle3Head, CompiledHead])
def drafter(request: pytest.FixtureRequest, tmp_path: Path) -> Eagle3Drafter:
    drafter = make_drafter(tmp_path, kind=request.param)
    drafter.extend(FEATURES, NEXT_TOKENS)
    return drafter


def check_tree(tree: DraftTree, tensors: dict[str, torch.Tensor], **flags: Any) -> None:
    """Hold every node of a tree against the path that leads to it."""
    ids = (tensors["d2t"] + torch.arange(len(tensors["d2t"]))).tolist()
    for node in range(len(tree)):
        children = tree.children(node)
        if len(children) == 0:
            continue
        path = tree.tokens[list(tree.path(node)[1:])].tolist()
        expected = path_log_probs(tensors, EMBEDDING, FEATURES, NEXT_TOKENS, path, **flags)
        best = expected.topk(len(children))
        assert [ids[i] for i in best.indices.tolist()] == tree.tokens[children].tolist()
        np.testing.assert_allclose(tree.log_probs[children], best.values, atol=2e-5)
        entropy = -(expected.exp() * expected).sum()
        np.testing.assert_allclose(tree.entropies[children], entropy, atol=2e-5)
        assert tree.ranks[children].tolist() == list(range(len(children)))


def test_a_tree_is_what_its_paths_say(drafter: Eagle3Drafter) -> None:
    tree = draw(drafter)
    assert len(tree) == 1 + 3 + 9 + 9
    assert (np.diff(tree.parents) >= 0).all()
    check_tree(tree, head_tensors())


def test_states_are_what_the_vocabulary_projection_is_given(drafter: Eagle3Drafter) -> None:
    """Kept only when they are wanted; nothing else about the tree changes."""
    plain = draw(drafter)
    assert plain.states is None
    assert drafter.keep_states() == D
    tree = draw(drafter)
    assert tree.tokens.tolist() == plain.tokens.tolist()
    assert tree.log_probs.tobytes() == plain.log_probs.tobytes()
    tensors = head_tensors()
    logits = torch.from_numpy(tree.states[1:].copy()) @ tensors["lm_head.weight"].T
    ids = (tensors["d2t"] + torch.arange(len(tensors["d2t"]))).tolist()
    for node, expected in enumerate(logits.log_softmax(-1), 1):
        column = ids.index(int(tree.tokens[node]))
        np.testing.assert_allclose(tree.log_probs[node], expected[column], atol=2e-5)
    assert not tree.states[0].any()


@pytest.mark.parametrize("flag", ["norm_before_residual", "input_norm", "q_norm", "rope_theta"])
@pytest.mark.parametrize("kind", [Eagle3Head, CompiledHead])
def test_flags_of_newer_heads(tmp_path: Path, kind: type[Eagle3Head], flag: str) -> None:
    tensors, generator = head_tensors(), torch.Generator().manual_seed(1)
    target = target_config()
    config: dict[str, Any] = {}
    flags: dict[str, Any] = {}
    if flag == "input_norm":
        tensors["input_norm.weight"] = torch.rand(len(AUX_LAYERS) * D, generator=generator)
    elif flag == "q_norm":
        for name in ("q_norm", "k_norm"):
            tensors[f"midlayer.self_attn.{name}.weight"] = torch.rand(16, generator=generator)
    elif flag == "rope_theta":
        config, flags = {"rope_parameters": {"rope_theta": 50.0}}, {"theta": 50.0}
    else:
        config, flags = {flag: True}, {flag: True}
    checkpoint = HeadCheckpoint.load(make_head(tmp_path, tensors, HEAD_CONFIG | config), target)
    is_fit = type(suitable_head(checkpoint, EMBEDDING)) is CompiledHead
    assert is_fit == (flag != "q_norm")
    if kind is CompiledHead and not is_fit:
        return
    drafter = make_drafter(tmp_path, tensors, kind, **config)
    drafter.extend(FEATURES, NEXT_TOKENS)
    check_tree(draw(drafter), tensors, **flags)


def test_the_best_nodes_are_expanded(drafter: Eagle3Drafter) -> None:
    tree = draw(drafter)
    level = np.flatnonzero(tree.depths == 2)
    expanded = np.unique(tree.parents[tree.depths == 3])
    best = np.sort(level[np.argsort(-tree.path_probs[level], kind="stable")[:3]])
    assert expanded.tolist() == best.tolist()


def test_catching_up_late_is_catching_up_at_once(tmp_path: Path, drafter: Eagle3Drafter) -> None:
    expected = draw(drafter)
    other = make_drafter(tmp_path / "other")
    other.extend(FEATURES[:4], NEXT_TOKENS[:4])
    draw(other)
    for i in range(4, 9):  # plain steps
        other.extend(FEATURES[i : i + 1], NEXT_TOKENS[i : i + 1])
    found = draw(other)
    assert found.tokens.tolist() == expected.tokens.tolist()
    np.testing.assert_allclose(found.log_probs, expected.log_probs, atol=1e-5)


def test_drafting_twice_gives_the_same_tree(drafter: Eagle3Drafter) -> None:
    first = draw(drafter)
    draw(drafter, DraftPlan(2, 7, 64))
    again = draw(drafter)
    assert again.tokens.tolist() == first.tokens.tolist()
    assert again.log_probs.tolist() == first.log_probs.tolist()


def test_reset_forgets(drafter: Eagle3Drafter) -> None:
    first = draw(drafter)
    drafter.reset()
    drafter.extend(FEATURES, NEXT_TOKENS)
    assert draw(drafter).log_probs.tolist() == first.log_probs.tolist()


def test_long_texts_are_run_in_parts_and_memory_grows(tmp_path: Path) -> None:
    features = torch.randn(1100, len(AUX_LAYERS) * D, generator=torch.Generator().manual_seed(2))
    tokens = np.random.default_rng(0).integers(0, V, 1100).tolist()
    drafter = make_drafter(tmp_path)
    drafter.extend(features, tokens)
    level = drafter.draft_level(PLAN, DraftTree.root(tokens[-1]))
    expected = path_log_probs(head_tensors(), EMBEDDING, features, tokens, [])
    np.testing.assert_allclose(level.log_probs, expected.topk(3).values, atol=1e-4)


def test_another_tree_cannot_be_continued(drafter: Eagle3Drafter) -> None:
    tree = draw(drafter, DraftPlan(1, 3, 64))
    draw(drafter)
    with pytest.raises(BackendError, match="continue the tree drafted last"):
        drafter.draft_level(PLAN, tree)


def test_a_top_k_beyond_the_vocabulary_draws_all_of_it(drafter: Eagle3Drafter) -> None:
    level = drafter.draft_level(DraftPlan(1, 500, 501), DraftTree.root(NEXT_TOKENS[-1]))
    assert len(level) == len(head_tensors()["d2t"])
    assert np.exp(level.log_probs.astype(np.float64)).sum() == pytest.approx(1, abs=1e-5)
