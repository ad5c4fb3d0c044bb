"""The best EAGLE-3 tree for a cache size, found on training prompts.

Every tree of the grid is replayed from one position-complete trace with this machine's profile; the
few fastest are then timed live, and the fastest of those is the tuned tree. It never sees the
prompts that it is compared on.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path

from specfit.backends.torch_backend import TorchBackend
from specfit.core.backend import Request
from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeLoop
from specfit.core.profile import HardwareProfile
from specfit.core.tree import DraftPlan
from specfit.policies import Eagle3
from specfit.policies.acceptance.identity import Identity
from specfit.policies.predictors.uniform import Uniform
from specfit.sim.metrics import measure
from specfit.sim.record_positions import record_positions
from specfit.sim.replay import replay
from specfit.sim.trace import TraceReader, TraceWriter, metadata_of

PLANS = (DraftPlan(7, 4, 64), DraftPlan(7, 2, 64), DraftPlan(7, 1, 64), DraftPlan(4, 8, 64))
"""Plans whose pools hold every tree of the grid."""

GRID: tuple[Eagle3, ...] = (
    *(Eagle3(depth, 1, depth + 1) for depth in (1, 2, 3, 4, 5, 7)),
    *(Eagle3(depth, 2, nodes) for depth in (1, 2, 3, 4, 5, 7) for nodes in (3, 5, 8, 12)),
    *(
        Eagle3(depth, 4, nodes)
        for depth in (1, 2, 3, 4, 5, 6, 7)
        for nodes in (4, 6, 8, 12, 16, 24, 30, 48)
    ),
    *(Eagle3(depth, 8, nodes) for depth in (2, 3, 4) for nodes in (8, 16, 30, 60)),
)
"""Chains, narrow and wide trees, small and large: depth, top-k, nodes."""

NUM_FINALISTS = 2


def record_training(
    backend: TorchBackend, requests: Sequence[Request], folder: Path
) -> TraceReader:
    """Record the training prompts position by position, with everything resident."""
    backend.set_cache("lru:100%")
    metadata = metadata_of(backend, "positions", plans=PLANS)
    with TraceWriter.create(folder, metadata) as writer:
        record_positions(backend, requests, PLANS, writer)
    return TraceReader(folder)


def finalists(trace: TraceReader, cache: str, profile: HardwareProfile) -> list[Eagle3]:
    """Return the trees of the grid with the highest simulated tokens a second."""
    speeds = [(_simulated_speed(trace, tree, cache, profile), i) for i, tree in enumerate(GRID)]
    return [GRID[i] for _, i in sorted(speeds, reverse=True)[:NUM_FINALISTS]]


def tuned(
    trace: TraceReader,
    backend: TorchBackend,
    requests: Sequence[Request],
    cache: str,
    profile: HardwareProfile,
) -> Eagle3:
    """Return the finalist that decodes the training prompts fastest live."""
    backend.set_cache(cache)
    return max(
        finalists(trace, cache, profile),
        key=lambda tree: _live_speed(backend, tree, requests, profile),
    )


def training_trace(backend: TorchBackend, requests: Sequence[Request]) -> TraceReader:
    """Record the training prompts into a temporary folder that lives as long as the process."""
    folder = Path(tempfile.mkdtemp(prefix="specfit-tuning-")) / "trace"
    return record_training(backend, requests, folder)


def _simulated_speed(
    trace: TraceReader, tree: Eagle3, cache: str, profile: HardwareProfile
) -> float:
    geometry = trace.metadata.geometry
    results = list(
        replay(
            trace,
            tree,
            make_cache(cache, geometry),
            profile,
            cost=ProfileCost(profile),
            predictor=Uniform(geometry),
            acceptance=Identity(),
        )
    )
    return measure(results, geometry.expert_bytes).tokens_per_s


def _live_speed(
    backend: TorchBackend, tree: Eagle3, requests: Sequence[Request], profile: HardwareProfile
) -> float:
    loop = DecodeLoop(backend, tree, ProfileCost(profile), Uniform(backend.geometry), Identity())
    results = [loop.run(request) for request in requests]
    return measure(results, backend.geometry.expert_bytes).tokens_per_s
