"""What `explain` explains is the cycle that `replay` replays, copies ahead and reads included."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specfit.cli.explained import Asked, explain_cycle
from specfit.cli.input_specs import Named
from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.errors import TraceCoverageError
from specfit.core.experts import ExpertCoverage
from specfit.core.prefetch import PreviousToken
from specfit.core.profile import HardwareProfile
from specfit.policies import Eagle3, SpecFit
from specfit.policies.acceptance.identity import Identity
from specfit.policies.predictors.uniform import Uniform
from specfit.sim.record_positions import record_positions
from specfit.sim.replay import replay
from specfit.sim.trace import TraceReader, TraceWriter, metadata_of
from specfit.testing.examples import example_profile
from specfit.testing.toy import ToyBackend, toy_backend
from tests.unit.sim.traces import PLANS, REQUESTS, write_run

POLICY = "eagle3:depth=4,top_k=3,max_nodes=12"


def record(
    folder: Path, specs: dict[str, str], hardware: HardwareProfile | None = None
) -> ToyBackend:
    """Write a position-complete trace; return the backend that answered."""
    backend, specs = toy_backend("lru:50%"), {"cache": "lru:50%", **specs}
    hardware = hardware or example_profile()
    metadata = metadata_of(backend, "positions", PLANS, hardware=hardware, specs=specs)
    with TraceWriter.create(folder, metadata) as writer:
        record_positions(backend, REQUESTS, PLANS, writer)
    return backend


def asked_of(trace: Path, index: int, policy: str, predictor: str) -> Asked:
    """Return the question about a cycle of the first prompt."""
    return Asked(
        trace=trace,
        prompt=0,
        cycle=index,
        policy=policy,
        settings=(),
        cache=None,
        cost="profile",
        host="trace",
        profile=None,
        model=None,
        inputs=Named(predictor, "identity"),
    )


@pytest.mark.parametrize("index", [0, 1, 4])
def test_the_recorded_prefetcher_is_replayed_too(tmp_path: Path, index: int) -> None:
    hardware = example_profile()
    backend = record(tmp_path / "trace", {"prefetch": "previous:num_tokens=3"})
    explained = explain_cycle(asked_of(tmp_path / "trace", index, POLICY, "uniform"))
    replayed = replay(
        TraceReader(tmp_path / "trace"),
        Eagle3(4, 3, 12),
        make_cache("lru:50%", backend.geometry),
        hardware,
        cost=ProfileCost(hardware),
        predictor=Uniform(backend.geometry),
        acceptance=Identity(),
        prefetcher=PreviousToken(3),
    )
    outcome = next(replayed).cycles[index].outcome
    found = explained.record.outcome
    assert (found.cycle.residency.mask == outcome.cycle.residency.mask).all()
    assert found.verification.num_prefetched == outcome.verification.num_prefetched
    again = explained.what_if.scene.residency_in(make_cache("lru:50%", backend.geometry))
    assert (again.mask == outcome.cycle.residency.mask).all()
    assert "prefetch previous:num_tokens=3" in explained.title


@pytest.mark.parametrize("index", [0, 1, 4])
@pytest.mark.parametrize("prefetch", ["none", "previous:num_tokens=3"])
def test_the_recorded_host_memory_is_replayed_too(
    tmp_path: Path, prefetch: str, index: int
) -> None:
    """A cycle is explained with the prices that decided it: those of experts on disk, too."""
    hardware = replace(example_profile(), ssd_bandwidth_bytes_per_s=1e8)
    specs = {"cache": "lru:25%", "host": "lru:60%", "prefetch": prefetch}
    backend = record(tmp_path / "trace", specs, hardware)
    asked = asked_of(tmp_path / "trace", index, "specfit", "uniform")
    explained = explain_cycle(asked)
    replayed = replay(
        TraceReader(tmp_path / "trace"),
        SpecFit(),
        make_cache("lru:25%", backend.geometry),
        hardware,
        cost=ProfileCost(hardware),
        predictor=Uniform(backend.geometry),
        acceptance=Identity(),
        prefetcher=None if prefetch == "none" else PreviousToken(3),
        host=make_cache("lru:60%", backend.geometry),
    )
    outcome = next(replayed).cycles[index].outcome
    found = explained.record.outcome
    assert (found.selection.mask == outcome.selection.mask).all()
    assert (found.cycle.terms.weight_s == outcome.cycle.terms.weight_s).all()
    assert found.cycle.terms.weight_s.max() > hardware.copy_s + hardware.ssd_s
    assert found.verification.num_reads == outcome.verification.num_reads
    again = explained.what_if.residency_in("lru:25%")
    assert again.in_host is not None and outcome.cycle.residency.in_host is not None
    assert (again.mask == outcome.cycle.residency.mask).all()
    assert (again.in_host == outcome.cycle.residency.in_host).all()
    assert 0 < again.in_host.sum() < again.in_host.size
    assert "host lru:60%" in explained.title
    all_held = explain_cycle(replace(asked, host="none")).record.outcome
    assert all_held.cycle.residency.in_host is None


@pytest.mark.parametrize("index", [0, 1, 4])
@pytest.mark.parametrize("policy", [POLICY, "specfit", "autoregressive"])
def test_an_oracle_knows_the_experts_of_the_cycle_that_is_explained(
    tmp_path: Path, policy: str, index: int
) -> None:
    """Also of a policy that never asks for them, whose choice is held against an exact search."""
    record(tmp_path / "trace", {})
    explained = explain_cycle(asked_of(tmp_path / "trace", index, policy, "oracle"))
    outcome = explained.record.outcome
    needed = ExpertCoverage(outcome.verification.routing, outcome.cycle.geometry.num_experts).mask
    probs = explained.what_if.scene.cycle.expert_probs.probs[outcome.verification.nodes]
    assert np.array_equal(probs, needed.astype(np.float32))
    assert explained.what_if.at(1e8, "lru:25%").best.upper_bound > 0
    assert "predictor oracle" in explained.title


def test_an_oracle_says_what_a_run_trace_lacks(tmp_path: Path) -> None:
    """Its cycles hold the experts of the verified nodes alone."""
    write_run(tmp_path / "trace")
    asked = replace(asked_of(tmp_path / "trace", 0, POLICY, "oracle"), profile="nvlink-c2c")
    with pytest.raises(TraceCoverageError, match="Record a position-complete trace to use an orac"):
        explain_cycle(asked)
