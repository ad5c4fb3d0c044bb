"""Drawing the target's token: transformers' processing, keyed noise, ties and margins."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats
from transformers import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
    TypicalLogitsWarper,
)

from specfit.backends.sampling import TargetSampler, process
from specfit.core.errors import BackendError
from specfit.core.noise import Sampling, gumbel_noise, processed_logits

SETTINGS = [
    Sampling(0.7, 0, 1.0, 1),
    Sampling(1.0, 5, 1.0, 2),
    Sampling(1.3, 0, 0.8, 3),
    Sampling(0.6, 20, 0.95, 4),
    Sampling(1.0, 200, 0.01, 5),
]


def logits(rows: int = 9, key: int = 0) -> torch.Tensor:
    return 3 * torch.randn(rows, 50, generator=torch.Generator().manual_seed(key))


@pytest.mark.parametrize("sampling", SETTINGS)
def test_processing_is_that_of_transformers(sampling: Sampling) -> None:
    scores, expected = logits(), logits()
    expected = TemperatureLogitsWarper(sampling.temperature)(None, expected)
    if sampling.top_k:
        expected = TopKLogitsWarper(sampling.top_k)(None, expected)
    if sampling.top_p < 1:
        expected = TopPLogitsWarper(sampling.top_p)(None, expected)
    assert torch.equal(process(scores, sampling), expected)
    more = replace(sampling, min_p=0.05, typical_p=0.7)
    expected = TypicalLogitsWarper(0.7)(None, MinPLogitsWarper(0.05)(None, expected))
    assert torch.equal(process(scores, more), expected)


@pytest.mark.parametrize("sampling", SETTINGS)
def test_processing_is_that_of_the_core(sampling: Sampling) -> None:
    found = process(logits(), sampling).numpy()
    expected = processed_logits(logits().double().numpy(), sampling)
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_greedy_takes_the_first_of_equals() -> None:
    scores = torch.tensor([[0.0, 2.0, 2.0, 1.0], [3.0, 1.0, 0.5, 0.0]])
    draw = TargetSampler(Sampling()).draw(scores, np.array([4, 5]))
    assert draw.tokens.tolist() == [1, 0]
    assert draw.margins.tolist() == [0.0, 2.0]
    np.testing.assert_allclose(draw.probs, scores.softmax(-1)[[0, 1], [1, 0]], rtol=1e-6)


def test_noise_belongs_to_the_position() -> None:
    sampling, scores = SETTINGS[0], logits(1).expand(4, -1)
    sampler = TargetSampler(sampling)
    tokens = sampler.draw(scores, np.array([7, 8, 7, 9])).tokens
    assert tokens[0] == tokens[2]
    alone = [
        int(TargetSampler(sampling).draw(scores[:1], np.array([p])).tokens[0]) for p in (7, 8, 9)
    ]
    assert [tokens[0], tokens[1], tokens[3]] == alone
    later = sampler.draw(scores[:1], np.array([9])).tokens
    assert later[0] == tokens[3]


def test_the_token_is_the_best_of_logits_and_noise() -> None:
    sampling = SETTINGS[3]
    scores = logits(1)
    draw = TargetSampler(sampling).draw(scores, np.array([3]))
    noisy = process(scores, sampling)[0].double().numpy() + gumbel_noise(4, 3, 50)
    order = np.argsort(-noisy)
    assert draw.tokens[0] == order[0]
    assert draw.margins[0] == pytest.approx(noisy[order[0]] - noisy[order[1]], rel=1e-5)
    expected = process(scores, sampling).softmax(-1)[0, order[0]]
    assert draw.probs[0] == pytest.approx(float(expected), rel=1e-5)


def test_draws_have_the_targets_law() -> None:
    """Chi-square on 20,000 positions at a fixed key; false-alarm rate 1e-3."""
    scores = torch.tensor([[1.0, 0.0, -1.0, 2.0, 0.5]])
    sampler = TargetSampler(Sampling(1.0, 0, 1.0, 99))
    positions = np.arange(20_000)
    tokens = sampler.draw(scores.expand(20_000, -1), positions).tokens
    expected = scores.softmax(-1)[0].double().numpy()
    counts = np.bincount(tokens, minlength=5)
    assert stats.chisquare(counts, 20_000 * expected / expected.sum()).pvalue > 1e-3


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_logits_that_are_no_numbers_are_an_error(bad: float) -> None:
    scores = logits(2)
    scores[1, 3] = bad
    with pytest.raises(BackendError, match="not finite"):
        TargetSampler(Sampling()).draw(scores, np.array([1, 2]))
