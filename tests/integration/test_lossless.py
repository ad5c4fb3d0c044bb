"""The text is plain transformers' own: every policy, cache, tree, stop and sampling setting."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from specfit.backends import load
from specfit.backends.cpu import CpuDevice
from specfit.backends.reference import StockModel
from specfit.core.backend import Request
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeLoop, DecodeResult
from specfit.core.noise import Sampling
from specfit.core.policy import Policy
from specfit.core.prefetch import Prefetcher, PrefetchView, PreviousToken
from specfit.core.profile import HardwareProfile
from specfit.data import FOLDER, PROMPTS
from specfit.policies.autoregressive import Autoregressive
from specfit.policies.eagle3 import Eagle3
from specfit.policies.inputs import load_inputs
from specfit.policies.specfit import SpecFit
from specfit.testing.random_policy import RandomPolicy
from tests.unit.backends.models import (
    PROMPT,
    V,
    decode,
    late_device,
    oracle_backend,
    random_backend,
    stock_text,
)

POLICIES: dict[str, Policy] = {
    "autoregressive": Autoregressive(),
    "chain": Eagle3(depth=4, top_k=1, max_nodes=5),
    "eagle3": Eagle3(depth=4, top_k=3, max_nodes=14),
    "random": RandomPolicy(),
}
CACHES = ["none", "lru:4", "lru:25%", "lru:100%"]
SAMPLINGS = [
    Sampling(1.0, 0, 1.0, 1),
    Sampling(0.7, 20, 0.9, 2),
    Sampling(1.5, 0, 0.95, 3),
]


def prompts(count: int) -> list[tuple[int, ...]]:
    rng = np.random.default_rng(8)
    return [tuple(rng.integers(0, V, int(rng.integers(1, 30))).tolist()) for _ in range(count)]


@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("policy", POLICIES)
def test_greedy_text_is_that_of_generate(policy: str, cache: str) -> None:
    with random_backend(cache) as backend:
        for key, prompt in enumerate(prompts(4)):
            request = Request(prompt, 24)
            result = decode(backend, POLICIES[policy], request, key)
            assert result.tokens == stock_text(request)
            assert backend._store.slot_bytes_are_current()


class WantsAnything(Prefetcher):
    """Wants experts at random, right or wrong."""

    def wanted(self, view: PrefetchView) -> np.ndarray:
        assert view.cycle is not None
        drawn = np.random.default_rng(view.cycle.cycle_index).random(view.nothing().shape)
        return np.where(drawn > 0.7, drawn, 0).astype(np.float32)


@pytest.mark.parametrize("is_late", [False, True])
@pytest.mark.parametrize("cache", CACHES)
@pytest.mark.parametrize("prefetcher", [PreviousToken(3), WantsAnything()])
def test_copies_ahead_do_not_change_the_text(
    prefetcher: Prefetcher, cache: str, is_late: bool
) -> None:
    request = Request(PROMPT, 30)
    text = stock_text(request)
    with oracle_backend(cache, PROMPT + text, late_device() if is_late else CpuDevice()) as backend:
        for key in range(3):
            result = decode(backend, RandomPolicy(), request, key, prefetcher)
            assert result.tokens == text
            assert backend._store.slot_bytes_are_current()
            ahead = sum(c.outcome.verification.num_prefetched for c in result.cycles)
            assert ahead > 0 or (cache == "lru:100%" and prefetcher == PreviousToken(3))


@pytest.mark.parametrize("cache", CACHES)
def test_scattered_acceptance_does_not_change_the_text(cache: str) -> None:
    request = Request(PROMPT, 60)
    text = stock_text(request)
    with oracle_backend(cache, PROMPT + text) as backend:
        for key in range(6):
            result = decode(backend, RandomPolicy(), request, key)
            assert result.tokens == text
            assert mean_accepted(result) > 0.3
        tree = decode(backend, Eagle3(depth=4, top_k=3, max_nodes=40), request)
        assert tree.tokens == text
        assert mean_accepted(tree) > 1


def mean_accepted(result: DecodeResult) -> float:
    return float(np.mean([len(c.outcome.accepted) for c in result.cycles]))


@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_sampled_text_is_the_same_with_and_without_drafts(sampling: Sampling) -> None:
    request = Request(PROMPT, 40, sampling=sampling)
    with random_backend("lru:100%") as plain:
        text = decode(plain, Autoregressive(), request).tokens
        other = Request(PROMPT, 40, sampling=Sampling(1.0, 0, 1.0, 77))
        assert decode(plain, Autoregressive(), other).tokens != text
    for cache in ("none", "lru:25%"):
        with oracle_backend(cache, PROMPT + text) as backend:
            for key in range(3):
                result = decode(backend, RandomPolicy(), request, key)
                assert result.tokens == text
            assert mean_accepted(result) > 0.3


RULES: list[dict[str, Any]] = [
    {"repetition_penalty": 1.3},
    {"no_repeat_ngram_size": 2, "min_new_tokens": 30},
    {"repetition_penalty": 1.1, "bad_words": ((7,), (3, 4), (2, 61)), "suppress_tokens": (9, 80)},
    {"no_repeat_ngram_size": 3, "begin_suppress_tokens": tuple(range(0, V, 2))},
]


@pytest.mark.parametrize("rules", RULES)
def test_greedy_text_under_rules_is_that_of_generate(rules: dict[str, Any]) -> None:
    """Rules read each node's own text; the drafts are wrong siblings of the true tokens."""
    stops = frozenset({11, 40})
    request = Request(PROMPT, 40, stops, Sampling(**rules))
    expected = stock_text(request)
    assert expected != stock_text(Request(PROMPT, 40, stops))
    with oracle_backend("lru:25%", PROMPT + expected) as backend:
        for key, policy in enumerate((RandomPolicy(), POLICIES["eagle3"], Autoregressive())):
            result = decode(backend, policy, request, key)
            assert result.tokens == expected
            assert policy == Autoregressive() or mean_accepted(result) > 0.1


@pytest.mark.parametrize("rules", RULES[:3])
def test_sampled_text_under_rules_is_that_of_plain_decoding(rules: dict[str, Any]) -> None:
    sampling = Sampling(1.2, 30, 0.95, 5, min_p=0.02, typical_p=0.9, **rules)
    request = Request(PROMPT, 30, frozenset({11}), sampling)
    with random_backend("lru:100%") as plain:
        text = decode(plain, Autoregressive(), request).tokens
    with oracle_backend("lru:25%", PROMPT + text) as backend:
        result = decode(backend, RandomPolicy(), request, 1)
        assert result.tokens == text
        assert mean_accepted(result) > 0.3


@pytest.mark.parametrize("max_new_tokens", range(1, 9))
def test_exactly_max_new_tokens(max_new_tokens: int) -> None:
    text = stock_text(Request(PROMPT, 20))
    with oracle_backend("lru:25%", PROMPT + text) as backend:
        request = Request(PROMPT, max_new_tokens)
        result = decode(backend, Eagle3(depth=6, top_k=3, max_nodes=40), request)
    assert result.tokens == text[:max_new_tokens]
    assert result.stop_reason == "length"


@pytest.mark.parametrize("place", range(8))
def test_stop_tokens_end_the_text_wherever_they_are(place: int) -> None:
    whole = stock_text(Request(PROMPT, 20))
    stop = whole[place]
    request = Request(PROMPT, 20, frozenset({stop, V + 1}))
    expected = whole[: whole.index(stop) + 1]
    with oracle_backend("lru:25%", PROMPT + whole) as backend:
        for policy in POLICIES.values():
            result = decode(backend, policy, request)
            assert result.tokens == expected
            assert result.stop_reason == "stop"
        again = decode(backend, Autoregressive(), Request(PROMPT, 20))
    assert again.tokens == whole


# The bundled model, when it is there.

BUNDLED_TINY = FOLDER / "tiny"
PROMPT_FILE = PROMPTS / "heldout.jsonl"
needs_model = pytest.mark.skipif(
    not (BUNDLED_TINY / "model.safetensors").exists(), reason="the bundled model is not installed"
)


@pytest.fixture(scope="module")
def bundled() -> Iterator[tuple[list[Request], list[tuple[int, ...]]]]:
    """Return 20 requests and what plain transformers answers."""
    with load("tiny") as backend:
        lines = PROMPT_FILE.read_text("utf-8").splitlines()[:20]
        texts = [backend.tokenizer(json.loads(line)["text"])["input_ids"] for line in lines]
        requests = [Request(tuple(text), 48, backend.stop_ids) for text in texts]
    stock = StockModel(BUNDLED_TINY)
    yield requests, [stock.generate(request) for request in requests]


TINY_PROFILE = HardwareProfile(
    name="test",
    provenance="made up for a test: copies cost ten times the compute of a token",
    kind="cited",
    first_level_s=3e-4,
    level_s=3e-4,
    verify_fixed_s=2e-3,
    verify_node_s=5e-5,
    resident_expert_s=5e-6,
    copy_latency_s=0.0,
    h2d_bandwidth_bytes_per_s=1e8,
    expert_bytes=49_152,
)


@needs_model
@pytest.mark.slow
@pytest.mark.parametrize("cache", ["none", "lru:8", "lru:50%"])
@pytest.mark.parametrize("policy", ["autoregressive", "eagle3", "specfit"])
def test_the_bundled_model_writes_generates_text(
    bundled: tuple[list[Request], list[tuple[int, ...]]], policy: str, cache: str
) -> None:
    chosen = {"autoregressive": Autoregressive(), "eagle3": Eagle3(5, 4, 30), "specfit": SpecFit()}
    with load("tiny", cache=cache) as backend:
        predictor, acceptance = load_inputs(BUNDLED_TINY, backend.geometry, Sampling())
        loop = DecodeLoop(backend, chosen[policy], ProfileCost(TINY_PROFILE), predictor, acceptance)
        for request, text in zip(*bundled, strict=True):
            assert loop.run(request).tokens == text


@needs_model
@pytest.mark.slow
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_bundled_model_samples_the_same_with_drafts(
    bundled: tuple[list[Request], list[tuple[int, ...]]], sampling: Sampling
) -> None:
    with load("tiny", cache="lru:25%") as backend:
        for request in bundled[0][:6]:
            sampled = Request(request.prompt, 48, request.stop_ids, sampling)
            plain = decode(backend, Autoregressive(), sampled)
            drafted = decode(backend, Eagle3(5, 4, 30), sampled)
            assert drafted.tokens == plain.tokens
