"""The fit recovers what synthetic routing was drawn from: token, parent token and recency."""

import numpy as np
import pytest

from specfit.core.errors import InvalidInputError
from specfit.core.experts import ExpertCoverage, ModelGeometry
from specfit.core.history import NEVER
from specfit.policies.fitting._kernels import age_buckets, base_logits
from specfit.policies.fitting.expert_table import AGE_EDGES, fit_expert_table
from specfit.policies.fitting.routing_sample import RoutingSample
from specfit.policies.fitting.token_counts import TokenCounts
from specfit.policies.predictors.expert_table import NO_PARENT, ExpertTable

GEOMETRY = ModelGeometry(
    num_layers=1, num_experts=8, experts_per_token=2, expert_bytes=1, vocab_size=6
)
NUM_TOKENS = 6000


def draw_sample(
    key: int, parent_effect: float = 0.0, recency: float = 0.0
) -> tuple[RoutingSample, np.ndarray]:
    """Tokens that prefer two experts each; the parent's token and the last routing add to it.

    Returns the sample (every token is a node of depth 1) and the true weights, float64[T, E].
    """
    rng = np.random.default_rng(key)
    tokens = rng.integers(0, 5, NUM_TOKENS)  # token 5 never occurs
    weights = np.zeros((NUM_TOKENS, 8))
    routing = np.zeros((NUM_TOKENS, 1, 2), np.int16)
    for t in range(NUM_TOKENS):
        weights[t, [tokens[t], tokens[t] + 1]] += 1.5
        if t:
            weights[t, tokens[t - 1] + 3] += parent_effect
            weights[t, routing[t - 1, 0]] += recency
        routing[t, 0] = np.argsort(-(weights[t] + rng.gumbel(size=8)))[:2]
    nodes = np.arange(1, NUM_TOKENS)
    sample = RoutingSample(
        stream=routing,
        texts=np.zeros(NUM_TOKENS, np.int32),
        tokens=tokens[nodes],
        parent_tokens=tokens[nodes - 1],
        depths=np.ones(len(nodes), np.int32),
        roots=nodes,
        routing=routing[nodes],
        follows=np.zeros(len(nodes), bool),
    )
    return sample, weights


def fit(**effects: float) -> ExpertTable:
    train, validation = (draw_sample(key, **effects)[0] for key in (1, 2))
    return fit_expert_table(train, {0.0: validation}, GEOMETRY, "0" * 64)


def predict(table: ExpertTable, sample: RoutingSample, ages: np.ndarray) -> np.ndarray:
    depths = np.ones(len(sample.tokens), np.int32)
    return table.probs(sample.tokens, sample.parent_tokens, depths, ages)


def test_predictions_match_the_frequencies_of_another_sample() -> None:
    table = fit()
    sample, _ = draw_sample(3)
    probs = predict(table, sample, np.full((1, 8), 4))
    needed = np.zeros(probs.shape, bool)
    np.put_along_axis(needed, sample.routing.astype(np.intp), True, axis=2)
    bins = np.minimum((probs * 10).astype(int), 9)
    for b in range(10):
        inside = bins == b
        if inside.sum() > 500:
            assert probs[inside].mean() == pytest.approx(needed[inside].mean(), abs=0.03)


def test_the_parent_token_is_used_where_it_matters() -> None:
    table = fit(parent_effect=2.0)
    ages = np.full((1, 8), 4)
    one = np.ones(1, np.int32)
    after = [table.probs(np.array([0]), np.array([p]), one, ages)[0, 0, 7] for p in (4, 0)]
    assert after[0] > 2 * after[1]  # the parent 4 adds to expert 7


def test_recent_experts_are_likelier_where_routing_repeats() -> None:
    table = fit(recency=1.5)
    sample, _ = draw_sample(3, recency=1.5)
    old = predict(table, sample, np.full((1, 8), 9))
    ages = np.full((1, 8), 9)
    ages[0, 5] = 0
    recent = predict(table, sample, ages)
    assert recent[:, 0, 5].mean() > 1.5 * old[:, 0, 5].mean()
    np.testing.assert_allclose(recent.sum(axis=2), 2, rtol=1e-3)


def test_each_temperature_gets_the_ages_of_its_own_texts() -> None:
    train = draw_sample(1, recency=1.0)[0]
    validation = {1.0: draw_sample(2)[0], 0.0: draw_sample(3, recency=2.0)[0]}
    table = fit_expert_table(train, validation, GEOMETRY, "0" * 64)
    assert table.temperatures.tolist() == [0.0, 1.0]
    newest, older = table.age_odds[:, 1, 0, 0], table.age_odds[:, 1, 0, 4]
    wary, steady = newest / older
    assert wary > 4.0
    assert 0.8 < steady < 1.3


def test_a_token_never_seen_gets_the_unigram_frequencies() -> None:
    table = fit()
    sample, _ = draw_sample(1)
    found = table.probs(
        np.array([5]), np.array([NO_PARENT]), np.ones(1, np.int32), np.full((1, 8), 4)
    )
    frequency = np.bincount(sample.routing.ravel(), minlength=8) / len(sample.routing)
    np.testing.assert_allclose(found[0, 0], frequency, atol=0.05)


def test_a_left_out_node_does_not_predict_itself() -> None:
    tokens = np.array([0, 1, 1])
    needed = np.zeros((3, 1, 2), bool)
    needed[[0, 1, 2], 0, [0, 1, 1]] = True
    counts = TokenCounts.of(tokens, needed, vocab_size=2)
    left_out = counts.left_out_logits(tokens, needed)
    unigram = np.log(counts.unigram / (1 - counts.unigram))
    np.testing.assert_allclose(left_out[0], unigram, rtol=1e-5)  # its token's only node
    assert left_out[1, 0, 1] > unigram[0, 1]  # the other node of its token speaks for it


@pytest.mark.parametrize(
    "kernel", [age_buckets, getattr(age_buckets, "py_func", age_buckets)], ids=["jit", "python"]
)
def test_ages_start_anew_with_each_text(kernel: object) -> None:
    routing = np.array([[[0]], [[1]], [[1]], [[1]]], np.int16)
    buckets = np.empty((4, 1, 2), np.uint8)
    kernel(routing, np.array([0, 0, 0, 1], np.int32), np.array(AGE_EDGES), buckets)  # type: ignore[operator]
    never = AGE_EDGES.index(NEVER + 16)
    expected = [[never, never], [0, never], [1, 0], [never, never]]
    np.testing.assert_array_equal(buckets[:, 0], expected)


def test_base_logits_and_their_python_twin_agree() -> None:
    sample, _ = draw_sample(1)
    needed = np.zeros((50, 1, 8), bool)
    np.put_along_axis(needed, sample.routing[:50].astype(np.intp), True, axis=2)
    counts = TokenCounts.of(sample.tokens[:50], needed, 6)
    found = np.empty((2, *needed.shape), np.float32)
    arrays = (counts.counts, counts.totals, counts.unigram, counts.kappas)
    base_logits(*arrays, sample.tokens[:50], needed, 1.0, found[0])
    twin = getattr(base_logits, "py_func", base_logits)
    twin(*arrays, sample.tokens[:50], needed, 1.0, found[1])
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)


def test_roots_outside_the_stream_are_refused() -> None:
    sample, _ = draw_sample(1)
    with pytest.raises(InvalidInputError, match="roots must lie in the stream of 5 tokens"):
        RoutingSample(
            sample.stream[:5],
            sample.texts[:5],
            sample.tokens,
            sample.parent_tokens,
            sample.depths,
            sample.roots,
            sample.routing,
            sample.follows,
        )


def paths_sample(key: int, kinship: float) -> RoutingSample:
    """Chains of four below a root; with probability `kinship` a token keeps its parent's experts.

    All tokens are the same, so every expert is as likely as any other, whatever the kinship.
    """
    rng = np.random.default_rng(key)
    routing = np.empty((NUM_TOKENS, 1, 2), np.int16)
    for t in range(NUM_TOKENS):
        keeps = t % 5 > 0 and rng.random() < kinship
        routing[t, 0] = routing[t - 1, 0] if keeps else rng.permutation(8)[:2]
    nodes = np.arange(NUM_TOKENS)
    depths = (nodes % 5).astype(np.int32)
    tokens = np.zeros(NUM_TOKENS, np.int64)
    return RoutingSample(
        stream=routing,
        texts=(nodes // 5).astype(np.int32),
        tokens=tokens,
        parent_tokens=np.where(depths > 0, tokens, NO_PARENT),
        depths=depths,
        roots=nodes - depths,
        routing=routing,
        follows=np.ones(NUM_TOKENS, bool),
    )


@pytest.mark.parametrize("kinship", [0.0, 0.3, 0.6])
def test_novelty_says_how_much_less_likely_what_the_path_did_not_need_is(kinship: float) -> None:
    """A child that keeps its parent's experts needs no other: of 1/4 there is left 1 - kinship."""
    samples = [paths_sample(key, kinship) for key in (1, 2)]
    table = fit_expert_table(samples[0], {0.0: samples[1]}, GEOMETRY, "0" * 64)
    given = np.array([0.25 * (0.25 + table.novelty**depth * 0.75) for depth in range(1, 5)])
    seen = []
    for depth in range(1, 5):
        chains = ExpertCoverage(samples[1].routing, 8).mask.reshape(-1, 5, 8)
        is_new = ~chains[:, :depth].any(axis=1)
        seen.append(chains[:, depth][is_new].mean())
    np.testing.assert_allclose(given, seen, atol=0.06)
    assert (table.novelty > 0.97) == (kinship == 0.0)
