"""Small traces of the toy backend, recorded once a test session."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from specfit.core.backend import Request
from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeLoop, DecodeResult
from specfit.core.policy import Policy
from specfit.core.tree import DraftPlan
from specfit.policies import Eagle3
from specfit.sim.record_positions import record_positions
from specfit.sim.record_run import RunRecorder
from specfit.sim.replay import replay
from specfit.sim.trace import TraceReader, TraceWriter, metadata_of
from specfit.testing.examples import DrafterAcceptance, UniformPredictor, example_profile
from specfit.testing.toy import ToyBackend, toy_backend

CACHE = "lru:50%"
POLICY = Eagle3(depth=4, top_k=3, max_nodes=12)
PLANS = (DraftPlan(4, 3, 64), DraftPlan(8, 2, 64))
REQUESTS = tuple(Request(tuple(range(1, 10 + i)), 24, frozenset({3})) for i in range(3))


def parts(backend: ToyBackend) -> dict[str, object]:
    """Return what a decode loop needs beside a backend and a policy."""
    return {
        "cost": ProfileCost(backend.profile),
        "predictor": UniformPredictor(backend.geometry),
        "acceptance": DrafterAcceptance(),
    }


def write_run(
    folder: Path,
    *,
    policy: Policy = POLICY,
    cache_spec: str = CACHE,
    requests: Sequence[Request] = REQUESTS,
    part_bytes: int = 1,
    with_states: bool = False,
) -> list[DecodeResult]:
    """Decode on the toy backend, record the run, and return the live results."""
    backend = toy_backend(cache_spec)
    width = backend.keep_states() if with_states else 0
    metadata = metadata_of(backend, "run", state_width=width)
    with TraceWriter.create(folder, metadata, part_bytes=part_bytes) as writer:
        loop = DecodeLoop(backend, policy, **parts(backend), observers=[RunRecorder(writer)])
        return [loop.run(request) for request in requests]


def write_positions(
    folder: Path, plans: Sequence[DraftPlan] = PLANS, *, with_states: bool = False
) -> None:
    """Record the toy backend's texts position by position."""
    backend = toy_backend(CACHE)
    width = backend.keep_states() if with_states else 0
    metadata = metadata_of(backend, "positions", plans, state_width=width)
    with TraceWriter.create(folder, metadata) as writer:
        record_positions(backend, REQUESTS, plans, writer)


def replayed(folder: Path, policy: Policy = POLICY, cache_spec: str = CACHE) -> list[DecodeResult]:
    """Return what a policy does on a trace of the toy backend."""
    backend = toy_backend()
    cache_object = make_cache(cache_spec, backend.geometry)
    trace = TraceReader(folder)
    return list(replay(trace, policy, cache_object, example_profile(), **parts(backend)))


@cache
def live(policy_spec: str, cache_spec: str) -> list[DecodeResult]:
    """Return what a policy does on the toy backend itself."""
    from specfit.core.policy import policies

    backend = toy_backend(cache_spec)
    loop = DecodeLoop(backend, policies.make(policy_spec), **parts(backend))
    return [loop.run(request) for request in REQUESTS]
