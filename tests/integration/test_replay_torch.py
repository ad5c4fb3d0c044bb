"""The promise: what a real model did live, a replay of its trace does again, cycle by cycle."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

pytest.importorskip("torch", reason="the live backend needs torch")

from specfit.backends import load
from specfit.backends.direct_file import DirectFile
from specfit.core.backend import Request
from specfit.core.cache import caches, make_cache
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeLoop, DecodeResult
from specfit.core.errors import BackendError
from specfit.core.noise import Sampling
from specfit.core.policy import policies
from specfit.core.prefetch import PredictedUnion, Prefetcher, PreviousToken
from specfit.core.tree import DraftPlan
from specfit.data import model_folder
from specfit.policies.inputs import load_inputs
from specfit.sim.record_positions import record_positions
from specfit.sim.record_run import RunRecorder
from specfit.sim.replay import ReplayBackend
from specfit.sim.trace import TraceReader, TraceWriter, metadata_of, strip_decisions
from specfit.testing.examples import example_profile

if TYPE_CHECKING:
    from specfit.backends.torch_backend import TorchBackend

PROFILE = example_profile()
PROMPTS = (
    "Janet has 3 apples and buys 4 more. How many apples does she have?",
    "A train travels 60 miles in 2 hours. How fast is it?",
)
COUNTERS = (
    "num_hits",
    "num_misses",
    "num_evictions",
    "num_prefetched",
    "num_wasted",
    "num_reads",
)
POLICIES = ("autoregressive", "eagle3:depth=4,top_k=3,max_nodes=12", "specfit")
PLANS = (DraftPlan(4, 3, 64), DraftPlan(5, 4, 64))


@pytest.fixture(scope="module")
def tiny() -> Iterator[TorchBackend]:
    with load("tiny", cache="lru:25%") as backend:
        yield backend


def requests(backend: TorchBackend, sampling: Sampling, num_tokens: int) -> list[Request]:
    return [
        Request(tuple(backend.tokenizer(prompt).input_ids), num_tokens, backend.stop_ids, sampling)
        for prompt in PROMPTS
    ]


def loop(
    backend: TorchBackend | ReplayBackend,
    policy: str,
    sampling: Sampling,
    prefetcher: Prefetcher | None = None,
) -> DecodeLoop:
    predictor, acceptance = load_inputs(model_folder("tiny"), backend.geometry, sampling)
    return DecodeLoop(
        backend,
        policies.make(policy),
        ProfileCost(PROFILE),
        predictor,
        acceptance,
        prefetcher=prefetcher,
    )


def record(
    backend: TorchBackend,
    folder: Path,
    policy: str,
    sampling: Sampling,
    num_tokens: int,
    prefetcher: Prefetcher | None = None,
) -> list[DecodeResult]:
    live = loop(backend, policy, sampling, prefetcher)
    with TraceWriter.create(folder, metadata_of(backend, "run")) as writer:
        observed = replace(live, observers=[RunRecorder(writer)])
        return [observed.run(request) for request in requests(backend, sampling, num_tokens)]


def replayed(
    folder: Path,
    policy: str,
    cache_spec: str,
    sampling: Sampling,
    prefetcher: Prefetcher | None = None,
    host: str | None = None,
) -> tuple[list[DecodeResult], ReplayBackend]:
    trace = TraceReader(folder)
    geometry = trace.metadata.geometry
    in_host = None if host is None else make_cache(host, geometry)
    profile = PROFILE if host is None else replace(PROFILE, ssd_bandwidth_bytes_per_s=1e9)
    backend = ReplayBackend(trace, make_cache(cache_spec, geometry), profile, in_host)
    replay = loop(backend, policy, sampling, prefetcher)
    return [replay.run(request) for request in backend.requests()], backend


def differences(ours: Sequence[DecodeResult], theirs: Sequence[DecodeResult]) -> list[str]:
    """Return every way in which the cycles of two runs differ, in words."""
    found = []
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if a.tokens != b.tokens or len(a.cycles) != len(b.cycles):
            found.append(f"prompt {number}: {len(a.cycles)} and {len(b.cycles)} cycles")
        for place, (x, y) in enumerate(zip(a.cycles, b.cycles, strict=False)):
            pairs = {
                "selection": (x.outcome.selection.nodes, y.outcome.selection.nodes),
                "accepted": (x.outcome.accepted, y.outcome.accepted),
                **{
                    name: (
                        getattr(x.outcome.verification, name),
                        getattr(y.outcome.verification, name),
                    )
                    for name in COUNTERS
                },
            }
            found += [
                f"prompt {number}, cycle {place}: {name}"
                for name, (p, q) in pairs.items()
                if not np.array_equal(p, q)
            ]
    return found


@pytest.mark.parametrize(
    "name",
    # LRU, FIFO and no cache: with every policy, below
    [
        name
        for name in caches.names()
        if name not in ("lru", "fifo", "none") and not caches.get(name).simulator_only
    ],
)
def test_a_run_replays_exactly_with_every_shipped_cache(
    tiny: TorchBackend, tmp_path: Path, name: str
) -> None:
    cache_spec = f"{name}:25%"
    tiny.set_cache(cache_spec)
    live = record(tiny, tmp_path / "run", POLICIES[1], Sampling(), 12)
    strip_decisions(tmp_path / "run", tmp_path / "bare")
    again, _ = replayed(tmp_path / "bare", POLICIES[1], cache_spec, Sampling())
    assert differences(live, again) == []


@pytest.mark.parametrize(
    ("cache_spec", "temperature"),
    [("lru:25%", 0.0), ("lru:25%", 0.7), ("lru:8", 0.0), ("fifo:50%", 0.0), ("none", 0.7)],
)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_run_replays_exactly_without_its_decisions(
    tiny: TorchBackend, tmp_path: Path, policy: str, cache_spec: str, temperature: float
) -> None:
    sampling = Sampling(temperature=temperature, noise_key=3)
    tiny.set_cache(cache_spec)
    live = record(tiny, tmp_path / "run", policy, sampling, 24)
    strip_decisions(tmp_path / "run", tmp_path / "bare")
    again, _ = replayed(tmp_path / "bare", policy, cache_spec, sampling)
    assert sum(len(result.cycles) for result in live) > len(PROMPTS)
    assert differences(live, again) == []


@pytest.mark.parametrize("cache_spec", ["lru:25%", "sieve:50%", "none"])
@pytest.mark.parametrize(
    "prefetcher", [PreviousToken(2), PredictedUnion(0.3)], ids=["previous", "predicted"]
)
def test_a_run_that_copied_ahead_replays_exactly(
    tiny: TorchBackend, tmp_path: Path, prefetcher: Prefetcher, cache_spec: str
) -> None:
    tiny.set_cache(cache_spec)
    policy, counters = POLICIES[2], tiny.device.counters
    plain = [loop(tiny, policy, Sampling()).run(r) for r in requests(tiny, Sampling(), 24)]
    live = record(tiny, tmp_path / "run", policy, Sampling(), 24, prefetcher)
    assert [r.tokens for r in live] == [r.tokens for r in plain]
    assert tiny._store.slot_bytes_are_current()
    strip_decisions(tmp_path / "run", tmp_path / "bare")
    again, _ = replayed(tmp_path / "bare", policy, cache_spec, Sampling(), prefetcher)
    assert differences(live, again) == []
    answers = [cycle.outcome.verification for result in live for cycle in result.cycles]
    ahead = sum(answer.num_prefetched for answer in answers)
    assert 0 < sum(answer.num_wasted for answer in answers) < ahead
    before = counters.num_copies
    one = loop(tiny, policy, Sampling(), prefetcher).run(live[0].request)
    of_cycles = sum(
        int(c.outcome.verification.num_misses.sum()) + c.outcome.verification.num_prefetched
        for c in one.cycles
    )
    of_prompt = make_cache(cache_spec, tiny.geometry).run_pass(one.prefill.routing)[1].sum()
    assert counters.num_copies - before == of_cycles + of_prompt


@pytest.mark.parametrize("host", ["lru:8", "sieve:50%"])
def test_a_run_over_three_tiers_replays_exactly(
    tiny: TorchBackend, tmp_path: Path, host: str
) -> None:
    """Down to the smallest tiers: 8 experts a layer are those of one token."""
    policy = POLICIES[1]
    tiny.set_cache("lru:100%")
    all_resident = [loop(tiny, policy, Sampling()).run(r) for r in requests(tiny, Sampling(), 16)]
    given: list[tuple[str, Prefetcher | None]] = [("lru:8", None), ("none", PreviousToken(2))]
    with load("tiny", cache="lru:8", host=host, packed=tmp_path / "packed") as backend:
        for cache_spec, prefetcher in given:
            backend.set_cache(cache_spec)
            folder = tmp_path / cache_spec.partition(":")[0]
            live = record(backend, folder, policy, Sampling(), 16, prefetcher)
            assert [r.tokens for r in live] == [r.tokens for r in all_resident]
            assert backend._store.slot_bytes_are_current()
            again, simulator = replayed(folder, policy, cache_spec, Sampling(), prefetcher, host)
            assert differences(live, again) == []
            answers = [cycle.outcome.verification for result in live for cycle in result.cycles]
            reads = sum(answer.num_reads for answer in answers)
            copies = sum(answer.num_copied for answer in answers)
            # least recently used, host memory of the slots' size holds what they hold: no use
            assert 0 < reads < copies or (reads == copies and host == cache_spec)
            ours, theirs = backend.residency(), simulator.residency()
            assert ours.in_host is not None and theirs.in_host is not None
            assert np.array_equal(ours.mask, theirs.mask)
            assert np.array_equal(ours.in_host, theirs.in_host)
        said = backend.describe()
        assert (said["host"], said["link"]["host_bytes"]) == (host, backend.host.memory.nbytes)


def test_a_failing_disk_ends_a_request_over_three_tiers_and_the_next_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with load("tiny", cache="lru:8", host="lru:8", packed=tmp_path) as backend:
        request = requests(backend, Sampling(), 8)[0]
        right = loop(backend, POLICIES[0], Sampling()).run(request).tokens
        read, calls = DirectFile.read, [0]

        def fails_once(self: DirectFile, offset: int, target: object) -> None:
            calls[0] += 1
            if calls[0] == 300:
                raise OSError(5, "Input/output error")
            read(self, offset, target)

        monkeypatch.setattr(DirectFile, "read", fails_once)
        with pytest.raises(BackendError, match=r"layer \d+, expert \d+: .*experts.*Input/output"):
            loop(backend, POLICIES[0], Sampling()).run(request)
        assert loop(backend, POLICIES[0], Sampling()).run(request).tokens == right


@cache
def positions_trace(backend: TorchBackend, folder: Path) -> Path:
    with TraceWriter.create(folder, metadata_of(backend, "positions", PLANS)) as writer:
        record_positions(backend, requests(backend, Sampling(), 24), PLANS, writer)
    return folder


@pytest.mark.parametrize("policy", [*POLICIES[:2], "eagle3:depth=5,top_k=4,max_nodes=20"])
def test_a_position_complete_trace_replays_other_policies_up_to_near_ties(
    tiny: TorchBackend, tmp_path_factory: pytest.TempPathFactory, policy: str
) -> None:
    tiny.set_cache("lru:25%")
    live = loop(tiny, policy, Sampling())
    results = [live.run(request) for request in requests(tiny, Sampling(), 24)]
    folder = positions_trace(tiny, tmp_path_factory.getbasetemp() / "torch-positions")
    again, backend = replayed(folder, policy, "lru:25%", Sampling())
    assert [r.tokens for r in again] == [r.tokens for r in results]
    assert all(tie.margin < 1e-3 for tie in backend.near_ties)
    if not backend.near_ties:
        assert differences(results, again) == []
