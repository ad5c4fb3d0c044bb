"""Both simulators keep the contract; hash seeds change nothing; T4: a recorded run replays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
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
from specfit.sim.replay import ReplayBackend, replay
from specfit.sim.trace import TraceReader, TraceWriter, metadata_of, strip_decisions
from specfit.testing.examples import (
    DrafterAcceptance,
    UniformPredictor,
    example_geometry,
    example_profile,
)
from specfit.testing.random_policy import RandomPolicy
from specfit.testing.simulator_contract import SimulatorContract
from specfit.testing.toy import ToyBackend, ToyModel, toy_backend

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


class TestToyBackend(SimulatorContract):
    make = staticmethod(
        lambda cache, profile: ToyBackend(ToyModel(GEOMETRY), make_cache(cache, GEOMETRY), profile)
    )


class TestReplay(SimulatorContract):
    request = REQUEST
    plan = DraftPlan(4, 3, 16)

    @pytest.fixture(autouse=True)
    def _recorded(self, trace: TraceReader) -> None:
        def make(cache: str, profile: HardwareProfile) -> ReplayBackend:
            return ReplayBackend(trace, make_cache(cache, GEOMETRY), profile)

        self.make = make  # type: ignore[method-assign]


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
