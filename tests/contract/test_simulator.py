"""Identities of the simulator, S1 to S6, and T4: a recorded run replays whatever the policy did."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specfit.core.backend import Request
from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeLoop, DecodeResult
from specfit.core.policy import Policy
from specfit.core.profile import HardwareProfile
from specfit.core.tree import DraftPlan
from specfit.policies import Autoregressive, Eagle3, SpecFit
from specfit.sim.record_positions import record_positions
from specfit.sim.record_run import RunRecorder
from specfit.sim.replay import replay
from specfit.sim.trace import TraceReader, TraceWriter, metadata_of, strip_decisions
from specfit.testing.examples import (
    DrafterAcceptance,
    UniformPredictor,
    example_geometry,
    example_profile,
)
from specfit.testing.random_policy import RandomPolicy
from specfit.testing.toy import ToyBackend, toy_backend

GEOMETRY = example_geometry()
PROMPT = tuple(np.random.default_rng(1).integers(0, 32, 120).tolist())
"""Long enough to need every expert of the toy, so that a full cache starts warm."""
REQUEST = Request(PROMPT, 30)
PLAN = DraftPlan(4, 3, 64)
POLICIES: list[Policy] = [Autoregressive(), Eagle3(4, 3, 12), SpecFit(depth=4, top_k=3)]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> TraceReader:
    """A position-complete trace of one text."""
    folder = tmp_path_factory.mktemp("traces") / "positions"
    backend = toy_backend()
    with TraceWriter.create(folder, metadata_of(backend, "positions", [PLAN])) as writer:
        record_positions(backend, [REQUEST], [PLAN], writer)
    return TraceReader(folder)


def replayed(
    trace: TraceReader,
    policy: Policy,
    cache: str = "lru:100%",
    profile: HardwareProfile | None = None,
    policy_key: int = 0,
) -> DecodeResult:
    profile = profile or example_profile()
    (result,) = replay(
        trace,
        policy,
        make_cache(cache, GEOMETRY),
        profile,
        cost=ProfileCost(profile),
        predictor=UniformPredictor(GEOMETRY),
        acceptance=DrafterAcceptance(),
        policy_key=policy_key,
    )
    return result


def test_s1_plain_decoding_with_all_resident_takes_tokens_times_a_step(trace: TraceReader) -> None:
    result = replayed(trace, Autoregressive())
    p = example_profile()
    num_experts = GEOMETRY.num_layers * GEOMETRY.experts_per_token
    step_s = p.verify_fixed_s + p.verify_node_s + num_experts * p.resident_expert_s
    assert result.decode_s == pytest.approx(result.num_decoded * step_s, rel=1e-12)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("cache", ["none", "lru:25%", "lru:100%"])
def test_s2_the_parts_sum_to_the_whole(trace: TraceReader, policy: Policy, cache: str) -> None:
    result, p = replayed(trace, policy, cache), example_profile()
    for record in result.cycles:
        levels, answer = record.outcome.cycle.levels, record.outcome.verification
        misses = int(answer.num_misses.sum())
        needed = misses + int(answer.num_hits.sum())
        draft_s = p.first_level_s + (levels - 1) * p.level_s if levels else 0.0
        compute_s = p.verify_fixed_s + record.num_verified * p.verify_node_s
        whole_s = draft_s + compute_s + needed * p.resident_expert_s + misses * p.copy_s
        assert record.timings.cycle_s == pytest.approx(whole_s, rel=1e-9)


@pytest.mark.parametrize("policy", POLICIES)
def test_s3_with_all_resident_nothing_is_copied(trace: TraceReader, policy: Policy) -> None:
    result = replayed(trace, policy)
    assert sum(int(c.outcome.verification.num_misses.sum()) for c in result.cycles) == 0
    assert sum(c.timings.stall_s for c in result.cycles) == 0


def test_s4_free_copies_make_the_cache_irrelevant(trace: TraceReader) -> None:
    """Time is then draft levels, passes and nodes: dense speculative decoding."""
    fast = replace(example_profile(), h2d_bandwidth_bytes_per_s=1e300, resident_expert_s=0.0)
    small, full = (replayed(trace, Eagle3(4, 3, 12), c, fast) for c in ("lru:2", "lru:100%"))
    dense_s = sum(
        fast.first_level_s * (c.outcome.cycle.levels > 0)
        + fast.level_s * max(c.outcome.cycle.levels - 1, 0)
        + fast.verify_fixed_s
        + fast.verify_node_s * c.num_verified
        for c in full.cycles
    )
    assert small.decode_s == pytest.approx(dense_s, rel=1e-9)
    assert full.decode_s == pytest.approx(dense_s, rel=1e-9)


PROGRAM = """
import json, sys
from pathlib import Path
from specfit.sim.trace import TraceReader
from tests.contract.test_simulator import POLICIES, replayed
result = replayed(TraceReader(Path(sys.argv[1])), POLICIES[2], "lru:50%")
print(json.dumps([[c.outcome.selection.nodes.tolist(), c.timings.cycle_s] for c in result.cycles]))
"""


@pytest.mark.slow
def test_s5_hash_seeds_and_processes_change_nothing(trace: TraceReader) -> None:
    answers = []
    for seed in ("0", "1"):
        ran = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(trace.folder)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=Path(__file__).parents[2],
            capture_output=True,
            text=True,
            check=True,
        )
        answers.append(json.loads(ran.stdout))
    here = replayed(trace, POLICIES[2], "lru:50%")
    mine = [[c.outcome.selection.nodes.tolist(), c.timings.cycle_s] for c in here.cycles]
    assert answers == [mine, mine]


def test_s6_policies_see_the_same_world(trace: TraceReader) -> None:
    results = [replayed(trace, policy, "lru:25%") for policy in POLICIES]
    first, *others = results
    for other in others:
        assert other.tokens == first.tokens
        one, two = first.cycles[0].outcome.cycle, other.cycles[0].outcome.cycle
        assert np.array_equal(one.residency.mask, two.residency.mask)
        assert one.context_len == two.context_len


@pytest.mark.parametrize("policy_key", range(4))
@pytest.mark.parametrize("cache", ["none", "fifo:25%", "lru:50%"])
def test_t4_a_run_of_random_decisions_replays(tmp_path: Path, cache: str, policy_key: int) -> None:
    """The recorded decisions are stripped first, so the policy really decides again."""
    backend = toy_backend(cache)
    live = record(tmp_path / "run", backend, policy_key)
    strip_decisions(tmp_path / "run", tmp_path / "bare")
    policy = RandomPolicy(max_top_k=1)
    again = replayed(TraceReader(tmp_path / "bare"), policy, cache, policy_key=policy_key)
    assert again.tokens == live.tokens
    for ours, theirs in zip(again.cycles, live.cycles, strict=True):
        assert np.array_equal(ours.outcome.selection.mask, theirs.outcome.selection.mask)
        assert ours.outcome.accepted == theirs.outcome.accepted
        for name in ("num_hits", "num_misses", "num_evictions"):
            one = getattr(ours.outcome.verification, name)
            assert np.array_equal(one, getattr(theirs.outcome.verification, name))
        assert ours.timings.cycle_s == pytest.approx(theirs.timings.cycle_s, rel=1e-9)


def record(folder: Path, backend: ToyBackend, policy_key: int) -> DecodeResult:
    with TraceWriter.create(folder, metadata_of(backend, "run")) as writer:
        return DecodeLoop(
            backend,
            RandomPolicy(max_top_k=1),
            ProfileCost(backend.profile),
            UniformPredictor(GEOMETRY),
            DrafterAcceptance(),
            [RunRecorder(writer)],
            policy_key,
        ).run(REQUEST)
