"""Drafters without a head: n-grams of the text, and a smaller model with the same tokenizer."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specfit.backends import load
from specfit.backends.checkpoint import Checkpoint
from specfit.backends.cpu import CpuDevice
from specfit.backends.draft_model import ModelDrafter, load_draft_model
from specfit.backends.ngram import NgramDrafter
from specfit.backends.torch_backend import TorchBackend
from specfit.core.backend import Request
from specfit.core.errors import BackendError, CheckpointError, InvalidInputError
from specfit.core.tree import DraftPlan, DraftTree
from specfit.data import model_folder
from specfit.policies.eagle3 import Eagle3
from specfit.testing.backend_contract import BackendContract
from tests.unit.backends.models import PROMPT, decode, random_backend, random_model, stock_text

NO_FEATURES = torch.zeros(0, 0)
PLAN = DraftPlan(depth=3, top_k=3, max_nodes=64)
REQUEST = Request(PROMPT, 40)


def ngram_backend(cache: str = "lru:50%", **options: Any) -> TorchBackend:
    return random_backend(cache, drafter="ngram:min_length=1", **options)


def model_backend(cache: str = "lru:50%") -> TorchBackend:
    """Draft with the target itself: what it drafts first is always right."""
    folder, model = random_model()
    drafter = ModelDrafter(model)
    return TorchBackend(Checkpoint.open(folder), drafter, CpuDevice(), cache, torch.float32, 512)


class TestNgramBackend(BackendContract):
    make = staticmethod(lambda cache="lru:50%": ngram_backend(cache))


class TestModelBackend(BackendContract):
    make = staticmethod(model_backend)


def draw(drafter: Any, root: int, plan: DraftPlan = PLAN) -> DraftTree:
    tree = DraftTree.root(root)
    for _ in range(plan.depth):
        level = drafter.draft_level(plan, tree)
        if len(level) == 0:
            break
        tree = tree.grow(level)
    return tree


def reading(text: list[int], **settings: Any) -> NgramDrafter:
    drafter = NgramDrafter(**settings)
    drafter.start(text[0])
    drafter.extend(NO_FEATURES, text[1:])
    return drafter


def test_what_followed_before_is_drafted() -> None:
    drafter = reading([1, 2, 3, 4, 5, 9, 1, 2, 3], min_length=2)
    assert draw(drafter, 3, DraftPlan(3, 1, 9)).tokens.tolist() == [3, 4, 5, 9]


def test_the_longest_suffix_weighs_most() -> None:
    text = [1, 2, 7, 0, 5, 2, 8, 0, 6, 2, 8, 0, 1, 2]  # after "1 2" came 7, after "2" mostly 8
    level = reading(text, min_length=1).draft_level(PLAN, DraftTree.root(2))
    assert level.tokens.tolist()[:2] == [7, 8]


def test_nothing_is_drafted_where_nothing_was_seen() -> None:
    drafter = reading([1, 2, 3, 4, 5])
    assert len(drafter.draft_level(PLAN, DraftTree.root(5))) == 0


@given(st.lists(st.integers(0, 4), min_size=1, max_size=60), st.integers(1, 3))
def test_probabilities_are_a_law_with_something_left(text: list[int], min_length: int) -> None:
    drafter = reading(text, min_length=min_length, max_length=4)
    tree = draw(drafter, text[-1], DraftPlan(3, 5, 64))
    for node in range(len(tree)):
        assert tree.cond_probs[tree.children(node)].sum() < 1


@given(st.lists(st.integers(0, 4), min_size=2, max_size=40), st.integers(1, 39))
def test_pieces_give_what_the_whole_gives(text: list[int], cut: int) -> None:
    whole, pieces = reading(text), NgramDrafter()
    pieces.start(text[0])
    pieces.extend(NO_FEATURES, text[1:cut])
    pieces.extend(NO_FEATURES, text[max(1, cut) :])
    one, other = draw(whole, text[-1]), draw(pieces, text[-1])
    assert one.tokens.tolist() == other.tokens.tolist()
    assert one.log_probs.tolist() == other.log_probs.tolist()


@pytest.mark.parametrize("settings", [{"min_length": 0}, {"max_length": 1}, {"escape": 0.0}])
def test_impossible_settings_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        NgramDrafter(**settings)


def test_text_that_repeats_itself_is_drafted_well() -> None:
    with load("tiny", drafter="ngram", cache="lru:50%") as backend:
        request = Request(tuple([5, 9, 200, 31, 77, 3] * 6), 30)
        result = decode(backend, Eagle3(depth=4, top_k=2, max_nodes=9), request)
        assert backend.describe()["drafter"] == "ngram"
    with load("tiny", drafter="none") as backend:
        plain = decode(backend, Eagle3(depth=4, top_k=2, max_nodes=9), request)
    assert result.tokens == plain.tokens
    assert len(result.cycles) < len(plain.cycles)


def test_a_draft_model_that_is_the_target_is_always_right() -> None:
    with model_backend() as backend:
        result = decode(backend, Eagle3(depth=4, top_k=1, max_nodes=5), REQUEST)
    assert result.tokens == stock_text(REQUEST)
    accepted = [len(c.outcome.accepted) for c in result.cycles[:-1]]
    assert min(accepted) == 4


def test_a_draft_models_tree_is_what_its_paths_say() -> None:
    _, model = random_model()
    drafter = ModelDrafter(model)
    drafter.start(PROMPT[0])
    drafter.extend(NO_FEATURES, list(PROMPT[1:]))
    tree = draw(drafter, PROMPT[-1])
    for node in range(len(tree)):
        children = tree.children(node)
        if len(children):
            path = [*PROMPT, *tree.tokens[list(tree.path(node)[1:])].tolist()]
            with torch.inference_mode():
                expected = model(torch.tensor([path])).logits[0, -1].log_softmax(-1)
            np.testing.assert_allclose(
                tree.log_probs[children], expected.topk(len(children)).values, atol=2e-5
            )
    with pytest.raises(BackendError, match="continue the tree"):
        drafter.draft_level(PLAN, _other(tree))


def _other(tree: DraftTree) -> DraftTree:
    """Return another tree than the one drafted last: its first two levels."""
    keep = tree.depths <= 1
    return DraftTree.from_arrays(tree.parents[keep], tree.cond_probs[keep], tree.tokens[keep])


@pytest.fixture
def draft_folder(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "draft"
    shutil.copytree(model_folder("tiny"), folder)
    yield folder


def test_a_draft_model_is_loaded_by_its_folder(draft_folder: Path) -> None:
    with load("tiny", drafter=f"model:{draft_folder}", cache="lru:50%") as backend:
        result = decode(backend, Eagle3(depth=3, top_k=1, max_nodes=4), Request((5, 6, 7), 12))
        assert backend.describe()["drafter"] == "model"
    assert min(len(c.outcome.accepted) for c in result.cycles[:-1]) == 3


def test_permuted_token_ids_are_refused(draft_folder: Path) -> None:
    path = draft_folder / "tokenizer.json"
    raw = json.loads(path.read_text("utf-8"))
    vocab = raw["model"]["vocab"]
    first, second = list(vocab)[300:302]
    vocab[first], vocab[second] = vocab[second], vocab[first]
    path.write_text(json.dumps(raw), "utf-8")
    with pytest.raises(CheckpointError, match=r"2 of its .* other ids"):
        load_draft_model(draft_folder, model_folder("tiny"), torch.device("cpu"))


def test_a_folder_without_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="no tokenizer"):
        load("tiny", drafter=f"model:{tmp_path}")
