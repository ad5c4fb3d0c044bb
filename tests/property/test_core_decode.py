"""The text is the target's, whatever is drafted and selected, greedy and sampled."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from specfit.core.backend import Request
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeLoop, DecodeResult
from specfit.core.noise import Sampling, processed_logits
from specfit.core.policy import Policy
from specfit.policies.autoregressive import Autoregressive
from specfit.testing.examples import (
    DrafterAcceptance,
    UniformPredictor,
    example_geometry,
    example_profile,
)
from specfit.testing.random_policy import RandomPolicy
from specfit.testing.toy import ToyBackend, ToyModel, target_draws, toy_backend

samplings = st.one_of(
    st.just(Sampling()),
    st.builds(
        Sampling,
        temperature=st.floats(0.3, 2.0),
        top_k=st.sampled_from([0, 1, 4]),
        top_p=st.sampled_from([0.5, 0.9, 1.0]),
        noise_key=st.integers(0, 2**64 - 1),
    ),
)


def run(
    policy: Policy, request: Request, backend: ToyBackend | None = None, policy_key: int = 0
) -> DecodeResult:
    backend = backend or toy_backend()
    return DecodeLoop(
        backend,
        policy,
        ProfileCost(example_profile()),
        UniformPredictor(backend.geometry),
        DrafterAcceptance(),
        policy_key=policy_key,
    ).run(request)


@given(
    prompt=st.lists(st.integers(0, 31), min_size=1, max_size=40).map(tuple),
    num_tokens=st.integers(1, 24),
    stop_ids=st.frozensets(st.integers(0, 31), max_size=2),
    sampling=samplings,
    cache=st.sampled_from(["none", "lru:2", "lru:25%", "lru:100%"]),
    policy_key=st.integers(0, 1000),
)
@settings(max_examples=100, deadline=None)
def test_any_policy_gives_the_plain_text(
    prompt: tuple[int, ...],
    num_tokens: int,
    stop_ids: frozenset[int],
    sampling: Sampling,
    cache: str,
    policy_key: int,
) -> None:
    request = Request(prompt, num_tokens, stop_ids, sampling)
    plain = run(Autoregressive(), request)
    result = run(RandomPolicy(), request, toy_backend(cache), policy_key)
    assert result.tokens == plain.tokens
    assert result.stop_reason == plain.stop_reason
    assert_counts_are_consistent(result)


def assert_counts_are_consistent(result: DecodeResult) -> None:
    """What was counted is what was routed, and a cycle accepts at most what it verified."""
    assert sum(c.num_committed for c in result.cycles) == result.num_decoded
    for record in result.cycles:
        outcome = record.outcome
        verification = outcome.verification
        assert len(outcome.accepted) == record.num_committed - 1 <= record.num_verified - 1
        layers = range(verification.routing.shape[1])
        unions = [len(np.unique(verification.routing[:, layer])) for layer in layers]
        assert (verification.num_hits + verification.num_misses).tolist() == unions


def test_two_noise_keys_give_two_texts() -> None:
    texts = {
        run(Autoregressive(), Request((1, 2), 12, sampling=Sampling(1.0, noise_key=key))).tokens
        for key in range(8)
    }
    assert len(texts) > 6


SMALL = ToyModel(example_geometry(vocab_size=5), sharpness=1.0)


@pytest.mark.parametrize(
    "sampling", [Sampling(1.0), Sampling(0.7, top_k=3), Sampling(1.3, top_p=0.8)]
)
def test_keyed_draws_have_the_law_of_the_processed_logits(sampling: Sampling) -> None:
    """Chi-square over 20,000 positions; the key is fixed, the false-alarm rate 1e-4 a case."""
    num_draws = 20_000
    logits = SMALL.target_logits[7]
    drawn, probs, _ = target_draws(
        np.broadcast_to(logits, (num_draws, 5)), np.arange(num_draws), sampling
    )
    law = np.exp(processed_logits(logits[None], sampling)[0])
    law /= law.sum()
    counts = np.bincount(drawn, minlength=5)
    assert counts[law == 0].sum() == 0
    kept = law > 0
    assert stats.chisquare(counts[kept], law[kept] * num_draws).pvalue > 1e-4
    assert np.allclose(probs, law[drawn], rtol=1e-5)


@pytest.mark.slow
def test_sampled_decoding_with_drafts_has_the_targets_law() -> None:
    """Chi-square of the first three tokens over 2,000 keys, the last two verified in one pass.

    Up to three siblings under a node; fixed keys, false-alarm rate 1e-4. Were one random number
    used for acceptance and for the next draw, successive tokens would not be independent.
    """
    num_keys = 2_000
    backend = ToyBackend(SMALL, toy_backend().cache, example_profile())
    counts = np.zeros((5, 5, 5))
    for key in range(num_keys):
        request = Request((1, 2, 3), 3, sampling=Sampling(1.0, noise_key=key))
        policy = RandomPolicy(max_depth=2, max_top_k=3)
        counts[run(policy, request, backend, policy_key=key).tokens] += 1
    expected = num_keys * law_of_three(backend, (1, 2, 3))
    rare = expected < 5
    observed = [*counts[~rare], counts[rare].sum()]
    assert stats.chisquare(observed, [*expected[~rare], expected[rare].sum()]).pvalue > 1e-4


def law_of_three(backend: ToyBackend, context: tuple[int, ...]) -> np.ndarray:
    """Return the target's probability of each three tokens after a context, float64[V, V, V]."""
    law = np.empty((5, 5, 5))
    for first in range(5):
        for second in range(5):
            law[first, second] = next_law(backend, (*context, first, second))
            law[first, second] *= next_law(backend, (*context, first))[second]
        law[first] *= next_law(backend, context)[first]
    return law


def next_law(backend: ToyBackend, context: tuple[int, ...]) -> np.ndarray:
    backend.start(Request(context, 1))
    row = backend._rows(np.array([backend._state], np.uint64))[0]
    weights = np.exp(backend.model.target_logits[row])
    law: np.ndarray = weights / weights.sum()
    return law
