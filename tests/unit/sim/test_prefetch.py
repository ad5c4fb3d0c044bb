"""Prefetching in a replay: what is copied ahead, what of it is wasted, and what it hides."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import specfit.sim.prefetch_oracle
from specfit.core.backend import Verification
from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeResult
from specfit.core.errors import BackendError, InvalidInputError
from specfit.core.policy import Policy
from specfit.core.predictor import CoveragePredictor
from specfit.core.prefetch import (
    PredictedUnion,
    Prefetcher,
    PrefetchView,
    PreviousToken,
    prefetchers,
)
from specfit.core.profile import HardwareProfile
from specfit.policies import SpecFit
from specfit.sim.metrics import measure
from specfit.sim.oracle import NoisyOracle
from specfit.sim.prefetch_oracle import OraclePrefetch
from specfit.sim.replay import replay
from specfit.sim.trace import TraceReader
from specfit.testing.examples import (
    DrafterAcceptance,
    UniformPredictor,
    example_geometry,
    example_profile,
)
from specfit.testing.toy import toy_backend
from tests.contract.shipped import shipped
from tests.unit.sim.traces import POLICY, REQUESTS, parts

GEOMETRY = example_geometry()


def run(
    folder: Path,
    prefetcher: Prefetcher | None,
    cache: str = "lru:50%",
    host: str | None = None,
    predictor: CoveragePredictor | None = None,
    policy: Policy = POLICY,
    **profile: Any,
) -> list[DecodeResult]:
    hardware = replace(example_profile(), **profile)
    return list(
        replay(
            TraceReader(folder),
            policy,
            make_cache(cache, GEOMETRY),
            hardware,
            cost=ProfileCost(hardware),
            predictor=predictor or UniformPredictor(GEOMETRY),
            acceptance=DrafterAcceptance(),
            prefetcher=prefetcher,
            host=make_cache(host, GEOMETRY) if host else None,
        )
    )


def totals(results: list[DecodeResult]) -> tuple[int, int, int]:
    """Return misses, prefetched and wasted experts."""
    seen = answers(results)
    misses = sum(int(answer.num_misses.sum()) for answer in seen)
    return misses, sum(a.num_prefetched for a in seen), sum(a.num_wasted for a in seen)


def answers(results: list[DecodeResult]) -> list[Verification]:
    """Return what each pass gave."""
    return [cycle.outcome.verification for result in results for cycle in result.cycles]


def test_the_oracle_fetches_every_miss_and_wastes_nothing(positions_trace: Path) -> None:
    """Passes that need more experts of a layer than there are slots miss what does not fit."""
    plain = totals(run(positions_trace, None, "lru:100%"))
    misses, prefetched, wasted = totals(run(positions_trace, OraclePrefetch(), "lru:100%"))
    assert plain[0] > 0
    assert (misses, prefetched, wasted) == (0, plain[0], 0)
    small = totals(run(positions_trace, OraclePrefetch(), "lru:50%"))
    assert small[2] == 0
    assert small[0] < totals(run(positions_trace, None))[0]


@pytest.mark.parametrize("prefetcher", [PreviousToken(), PreviousToken(3), PredictedUnion(0.5)])
def test_what_is_fetched_for_nothing_is_charged(
    positions_trace: Path, prefetcher: Prefetcher
) -> None:
    results = run(positions_trace, prefetcher, predictor=NoisyOracle(recall=0.6))
    misses, prefetched, wasted = totals(results)
    assert 0 < wasted <= prefetched
    metrics = measure(results, GEOMETRY.expert_bytes)
    assert metrics.h2d_bytes == (misses + prefetched) * GEOMETRY.expert_bytes
    assert metrics.wasted_bytes == wasted * GEOMETRY.expert_bytes
    p = example_profile()
    for cycle in (cycle for result in results for cycle in result.cycles):
        answer = cycle.outcome.verification
        copies = int(answer.num_misses.sum()) + answer.num_prefetched
        assert answer.stall_s == pytest.approx(copies * p.copy_s)


@pytest.mark.parametrize("prefetcher", [None, OraclePrefetch(), PreviousToken(3)])
def test_realised_misses_are_what_a_perfect_prediction_says(
    positions_trace: Path, prefetcher: Prefetcher | None
) -> None:
    """Both speak of the experts not resident when the cycle began, copied ahead or not."""
    policy = SpecFit()
    results = run(positions_trace, prefetcher, predictor=NoisyOracle(recall=1.0), policy=policy)
    found = measure(results, GEOMETRY.expert_bytes).calibration
    assert found.realised_misses > 0
    assert found.misses_ratio == pytest.approx(1.0)
    assert policy._misses.scale == pytest.approx(1.0)
    assert sum(answer.num_prefetched for answer in answers(results)) > 0 or prefetcher is None


def test_overlap_hides_what_is_fetched_and_the_text_stays(positions_trace: Path) -> None:
    plain = run(positions_trace, None)
    serial = run(positions_trace, OraclePrefetch())
    hidden = run(positions_trace, OraclePrefetch(), overlap="pass")
    early = run(positions_trace, PreviousToken(), overlap="pass")
    assert [r.tokens for r in plain] == [r.tokens for r in serial] == [r.tokens for r in hidden]
    seconds = [sum(r.decode_s for r in results) for results in (plain, serial, hidden)]
    assert seconds[1] == pytest.approx(seconds[0], rel=0.2)
    assert seconds[2] < seconds[1]
    assert [r.tokens for r in early] == [r.tokens for r in plain]


class WrongOracle(OraclePrefetch):
    """Wants exactly what the pass will not need."""

    def wanted(self, view: PrefetchView) -> np.ndarray:
        return (super().wanted(view) == 0).astype(np.float32)


@pytest.mark.parametrize("overlap", ["none", "resident"])
def test_what_is_always_wrong_is_slower_than_nothing(positions_trace: Path, overlap: str) -> None:
    none, wrong = (
        run(positions_trace, prefetcher, overlap=overlap) for prefetcher in (None, WrongOracle())
    )
    assert [r.tokens for r in wrong] == [r.tokens for r in none]
    _, prefetched, wasted = totals(wrong)
    assert wasted == prefetched > 0
    assert sum(r.decode_s for r in wrong) > 1.2 * sum(r.decode_s for r in none)


def test_copies_before_the_drafting_have_its_head_start(positions_trace: Path) -> None:
    """The stall is what the pass waits for, plus what outlasts drafting and compute."""
    slow: dict[str, Any] = {"overlap": "pass", "h2d_bandwidth_bytes_per_s": 2e7}
    results = run(positions_trace, PreviousToken(), **slow)
    profile: HardwareProfile = replace(example_profile(), **slow)
    outlasts = 0
    for cycle in (cycle for result in results for cycle in result.cycles):
        answer, timings = cycle.outcome.verification, cycle.timings
        ahead_s = answer.num_prefetched * profile.copy_s - timings.draft_s
        waits_s = int(answer.num_misses.sum()) * profile.copy_s
        expected = waits_s + max(0.0, ahead_s - answer.compute_s)
        assert answer.stall_s == pytest.approx(expected, rel=1e-9)
        outlasts += ahead_s > answer.compute_s
    assert outlasts > 0


def test_resident_first_hides_no_more_than_experts_take(positions_trace: Path) -> None:
    none, resident, layer = (
        sum(r.decode_s for r in run(positions_trace, None, overlap=overlap))
        for overlap in ("none", "resident", "layer")
    )
    assert layer < resident < none


def test_experts_on_disk_take_longer_until_they_are_in_host_memory(positions_trace: Path) -> None:
    disk = {"ssd_latency_s": 1e-3, "ssd_bandwidth_bytes_per_s": 1e9}
    in_host, half, all_fit = (
        run(positions_trace, None, host=host, **disk) for host in (None, "lru:50%", "lru:100%")
    )
    assert [r.tokens for r in half] == [r.tokens for r in in_host]
    assert totals(half) == totals(in_host)
    seconds = [sum(r.decode_s for r in results) for results in (in_host, all_fit, half)]
    assert seconds[0] < seconds[1] < seconds[2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"overlap": "pass"}, "hides what is prefetched"),
        ({"host": "lru:50%"}, "needs a disk"),
        (
            {"host": "lru:50%", "cache": "pool:50%", "ssd_bandwidth_bytes_per_s": 1e9},
            "slots of its own",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    positions_trace: Path, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidInputError, match=message):
        run(positions_trace, None, **change)


def test_a_backend_without_prefetching_says_so() -> None:
    from specfit.core.decode import DecodeLoop

    backend = toy_backend()
    loop = DecodeLoop(backend, POLICY, **parts(backend), prefetcher=PreviousToken())
    with pytest.raises(BackendError, match="ToyBackend does not prefetch"):
        loop.run(REQUESTS[0])


def test_every_shipped_prefetcher_keeps_the_text_and_says_what_it_is(positions_trace: Path) -> None:
    plain = [r.tokens for r in run(positions_trace, None)]
    for cls in shipped(prefetchers):
        prefetcher = cls()
        assert [r.tokens for r in run(positions_trace, prefetcher)] == plain
        spec = prefetcher.to_spec()
        assert prefetchers.build(spec["name"], spec["params"]) == prefetcher
    assert specfit.sim.prefetch_oracle.OraclePrefetch in shipped(prefetchers)


def test_the_previous_token_is_wanted_most(positions_trace: Path) -> None:
    from specfit.core.history import RoutingHistory
    from specfit.core.prefetch import PrefetchView

    history = RoutingHistory(GEOMETRY)
    shape = (1, GEOMETRY.num_layers, GEOMETRY.experts_per_token)
    for expert in (1, 2, 3):
        history.append(np.full(shape, expert, np.int16))
    wanted = PreviousToken(2).wanted(PrefetchView(GEOMETRY, history))
    assert wanted[0, :4].tolist() == [0, 0, 0.5, 1]
    with pytest.raises(InvalidInputError, match="1 or more"):
        PreviousToken(0)
    with pytest.raises(InvalidInputError, match="above 0"):
        PredictedUnion(0)
