"""The estimate of plain decoding is what a replay of plain decoding counts."""

from dataclasses import replace

import pytest

from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeLoop
from specfit.core.prefetch import PreviousToken
from specfit.policies import Autoregressive, Eagle3, SpecFit
from specfit.sim.metrics import measure
from specfit.sim.plain_estimate import PlainEstimate
from specfit.sim.replay import replay
from specfit.sim.trace import TraceReader
from specfit.testing.examples import DrafterAcceptance, UniformPredictor, example_profile
from specfit.testing.toy import toy_backend
from tests.unit.sim.traces import POLICY, REQUESTS, write_positions


def decoded(policy, cache, observers=()):
    backend = toy_backend(cache)
    inputs = UniformPredictor(backend.geometry), DrafterAcceptance()
    cost = ProfileCost(example_profile())
    loop = DecodeLoop(backend, policy, cost, *inputs, observers)
    return [loop.run(request) for request in REQUESTS]


@pytest.mark.parametrize("cache", ["lru:25%", "lfu:50%", "none"])
@pytest.mark.parametrize("policy", [Eagle3(4, 3, 12), SpecFit(), Autoregressive()])
def test_it_is_what_plain_decoding_does(policy, cache):
    estimate = PlainEstimate(make_cache(cache, toy_backend().geometry), example_profile())
    decoded(policy, cache, [estimate])
    plain = measure(decoded(Autoregressive(), cache), 1)
    assert estimate.num_tokens == plain.num_committed
    assert estimate.num_misses == plain.num_misses
    assert estimate.seconds == pytest.approx(plain.decode_s)
    assert estimate.tokens_per_s == pytest.approx(plain.tokens_per_s)
    assert estimate.paced_tokens_per_s == pytest.approx(plain.tokens_per_s)


def test_a_machine_at_half_the_pace_halves_the_estimate():
    slow = replace(
        example_profile(),
        verify_fixed_s=2 * example_profile().verify_fixed_s,
        verify_node_s=2 * example_profile().verify_node_s,
        resident_expert_s=2 * example_profile().resident_expert_s,
        h2d_bandwidth_bytes_per_s=example_profile().h2d_bandwidth_bytes_per_s / 2,
    )
    backend = toy_backend("lru:25%")
    backend.profile = slow
    estimate = PlainEstimate(make_cache("lru:25%", backend.geometry), example_profile())
    inputs = UniformPredictor(backend.geometry), DrafterAcceptance()
    loop = DecodeLoop(backend, Eagle3(4, 3, 12), ProfileCost(slow), *inputs, [estimate])
    loop.run(REQUESTS[0])
    assert estimate.paced_tokens_per_s == pytest.approx(estimate.tokens_per_s / 2)


@pytest.mark.parametrize("overlap", ["none", "resident", "layer"])
def test_copies_ahead_are_no_slower_pace(tmp_path, overlap):
    """The machine keeps the profile's pace exactly, with or without a prefetcher."""
    write_positions(tmp_path / "trace")
    profile = replace(example_profile(), overlap=overlap)
    geometry = toy_backend().geometry
    estimate = PlainEstimate(make_cache("lru:25%", geometry), profile)
    results = replay(
        TraceReader(tmp_path / "trace"),
        POLICY,
        make_cache("lru:25%", geometry),
        profile,
        cost=ProfileCost(profile),
        predictor=UniformPredictor(geometry),
        acceptance=DrafterAcceptance(),
        observers=[estimate],
        prefetcher=PreviousToken(3),
    )
    assert sum(c.outcome.verification.num_prefetched for r in results for c in r.cycles) > 0
    assert estimate.paced_tokens_per_s == pytest.approx(estimate.tokens_per_s)


def test_it_charges_a_pass_by_the_profiles_table_and_overlap():
    profile = replace(example_profile(), verify_table_s=(0.02, 0.05), overlap="resident")
    backend = toy_backend("lru:25%")
    backend.profile = profile
    estimate = PlainEstimate(make_cache("lru:25%", backend.geometry), profile)
    inputs = UniformPredictor(backend.geometry), DrafterAcceptance()
    loop = DecodeLoop(backend, Autoregressive(), ProfileCost(profile), *inputs, [estimate])
    result = loop.run(REQUESTS[0])
    assert estimate.seconds == pytest.approx(result.decode_s)


def test_before_the_first_cycle_there_is_no_estimate():
    estimate = PlainEstimate(make_cache("none", toy_backend().geometry), example_profile())
    assert estimate.tokens_per_s != estimate.tokens_per_s
