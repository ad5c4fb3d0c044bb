"""What `explain` explains is the cycle that `replay` replays, copies ahead included."""

from __future__ import annotations

from pathlib import Path

import pytest

from specfit.cli.explained import Asked, explain_cycle
from specfit.cli.input_specs import Named
from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.prefetch import PreviousToken
from specfit.policies import Eagle3
from specfit.policies.acceptance.identity import Identity
from specfit.policies.predictors.uniform import Uniform
from specfit.sim.record_positions import record_positions
from specfit.sim.replay import replay
from specfit.sim.trace import TraceReader, TraceWriter, metadata_of
from specfit.testing.examples import example_profile
from specfit.testing.toy import toy_backend
from tests.unit.sim.traces import PLANS, REQUESTS

POLICY = "eagle3:depth=4,top_k=3,max_nodes=12"


@pytest.mark.parametrize("index", [0, 1, 4])
def test_the_recorded_prefetcher_is_replayed_too(tmp_path: Path, index: int) -> None:
    backend, hardware = toy_backend("lru:50%"), example_profile()
    specs = {"cache": "lru:50%", "prefetch": "previous:num_tokens=3"}
    metadata = metadata_of(backend, "positions", PLANS, hardware=hardware, specs=specs)
    with TraceWriter.create(tmp_path / "trace", metadata) as writer:
        record_positions(backend, REQUESTS, PLANS, writer)
    asked = Asked(
        trace=tmp_path / "trace",
        prompt=0,
        cycle=index,
        policy=POLICY,
        settings=(),
        cache=None,
        cost="profile",
        profile=None,
        model=None,
        inputs=Named("uniform", "identity"),
    )
    explained = explain_cycle(asked)
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
