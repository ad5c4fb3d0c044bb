"""Going on from a text that is held: the same text, less prefill, whatever drafts."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from specfit.backends.draft_model import ModelDrafter
from specfit.backends.held_text import HeldText
from specfit.backends.torch_backend import TorchBackend
from specfit.core.backend import Request
from specfit.core.decode import DecodeLoop, DecodeResult
from specfit.core.noise import Sampling
from specfit.policies.eagle3 import Eagle3
from tests.unit.backends.models import PROMPT, decode, random_backend, random_model

POLICY = Eagle3(3, 2, 8)
TOKENS = st.lists(st.integers(0, 2), max_size=6)
TURNS = [(), (4, 9, 9), (71,), (5, 17, 80)]


@given(TOKENS, TOKENS.filter(bool))
def test_all_of_the_common_beginning_but_its_last_token_is_kept(
    held: list[int], prompt: list[int]
) -> None:
    text = HeldText()
    text.extend(held, np.zeros((len(held), 1, 1), np.int16))
    kept = text.num_kept(prompt)
    assert kept < max(1, len(prompt)) and held[:kept] == prompt[:kept]
    longer = kept + 2
    assert held[:longer] != prompt[:longer] or min(len(held), len(prompt)) < longer


def test_what_is_interrupted_is_not_held() -> None:
    text = HeldText()
    text.extend([1, 2, 3], np.zeros((3, 1, 1), np.int16))
    with pytest.raises(KeyboardInterrupt), text.changing():
        raise KeyboardInterrupt
    assert text.num_kept([1, 2, 3]) == 0


def turns(backend: TorchBackend, sampling: Sampling, *, keeps: bool) -> list[DecodeResult]:
    """Return the answers of a conversation in which each turn says something."""
    said, answers = PROMPT, []
    for turn in TURNS:
        said += turn
        request = Request(said, 9, frozenset({3}), sampling, keeps_prefix=keeps)
        answers.append(decode(backend, POLICY, request))
        said += answers[-1].tokens
    return answers


@pytest.mark.parametrize("sampling", [Sampling(), Sampling(0.9, 20, 0.9, 4)])
@pytest.mark.parametrize("drafter", [None, "ngram", "model"])
def test_a_conversation_is_the_same_with_less_prefill(
    drafter: str | None, sampling: Sampling
) -> None:
    with random_backend(drafter="none" if drafter == "model" else drafter) as backend:
        if drafter == "model":
            backend._drafter = ModelDrafter(random_model()[1])
        anew = turns(backend, sampling, keeps=False)
        backend.start(Request((1, 2), 1))  # of another text
        kept = turns(backend, sampling, keeps=True)
    for ours, theirs in zip(kept, anew, strict=True):
        assert ours.tokens == theirs.tokens
        assert np.array_equal(ours.prefill.routing, theirs.prefill.routing)
        drawn = [c.outcome.cycle.tree.tokens.tolist() for c in ours.cycles]
        assert drawn == [c.outcome.cycle.tree.tokens.tolist() for c in theirs.cycles]
    for before, turn in itertools.pairwise(kept):
        held = len(before.request.prompt) + before.num_decoded
        assert turn.prefill.num_kept == held - 1
        assert turn.prefill.num_kept + sum(turn.prefill.chunks) == len(turn.request.prompt)
    assert all(a.prefill.num_kept == 0 for a in anew)


def test_a_cancelled_turn_is_kept_as_far_as_it_came() -> None:
    request = Request(PROMPT, 20, keeps_prefix=True)
    with random_backend() as backend:
        expected = decode(backend, POLICY, replace(request, keeps_prefix=False)).tokens
        loop = loop_of(backend)
        stream = loop.stream(replace(request, keeps_prefix=False))
        for _ in range(3):
            next(stream)
        stream.close()
        again = decode(backend, POLICY, request)
        assert again.tokens == expected
        assert again.prefill.num_kept == len(PROMPT) - 1


def loop_of(backend: TorchBackend) -> DecodeLoop:
    from specfit.core.cost import ProfileCost
    from specfit.testing.examples import DrafterAcceptance, UniformPredictor, example_profile

    inputs = UniformPredictor(backend.geometry), DrafterAcceptance()
    return DecodeLoop(backend, POLICY, ProfileCost(example_profile()), *inputs)


def test_another_use_of_the_target_keeps_nothing() -> None:
    request = Request(PROMPT, 6, keeps_prefix=True)
    with random_backend() as backend:
        first = decode(backend, POLICY, request)
        with torch.inference_mode():
            backend.target.run([1, 2, 3])
        again = decode(backend, POLICY, request)
        assert again.prefill.num_kept == 0 and again.tokens == first.tokens
        backend.set_cache("lru:100%")
        assert decode(backend, POLICY, request).prefill.num_kept == 0
