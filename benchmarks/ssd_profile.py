"""What this machine takes for passes over experts on disk, measured on texts to tune on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from specfit.backends.calibrate import fit_nonnegative
from specfit.cli.inputs import Inputs
from specfit.cli.specs import policy_from
from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.decode import CycleRecord, DecodeLoop, DecodeResult
from specfit.core.profile import HardwareProfile
from specfit.policies.acceptance.identity import Identity
from specfit.policies.predictors.uniform import Uniform
from specfit.sim.forced_backend import ForcedBackend
from specfit.sim.metrics import measure
from specfit.sim.replay import replay
from specfit.sim.trace import TraceReader

PROBES = (
    "eagle3:depth=6,top_k=4,max_nodes=24",
    "autoregressive",
    "eagle3:depth=4,top_k=2,max_nodes=5",
    "eagle3:depth=5,top_k=4,max_nodes=12",
)
"""Trees of all sizes, so that nodes, experts and misses vary apart; from large to small."""

GRID = (
    *(f"eagle3:depth={d},top_k=1,max_nodes={d + 1}" for d in (1, 2, 3, 4, 6)),
    *(f"eagle3:depth={d},top_k=2,max_nodes={n}" for d in (1, 2, 4, 6) for n in (3, 5, 8)),
    *(f"eagle3:depth={d},top_k=4,max_nodes={n}" for d in (3, 5, 6) for n in (6, 12, 24, 48)),
    "eagle3:depth=4,top_k=8,max_nodes=60",
)
"""What EAGLE-3 is tuned over."""


def unmeasured(expert_bytes: int) -> HardwareProfile:
    """Return a profile to start from: a second a copy, nothing else."""
    return HardwareProfile(
        name="unmeasured",
        provenance="placeholder before calibration",
        kind="cited",
        first_level_s=0.0,
        level_s=0.0,
        verify_fixed_s=1e-3,
        verify_node_s=0.0,
        resident_expert_s=0.0,
        copy_latency_s=1.0,
        h2d_bandwidth_bytes_per_s=1e9,
        expert_bytes=expert_bytes,
    )


def calibrated(backends: Iterable[ForcedBackend], num_cycles: int) -> HardwareProfile:
    """Return the profile that fits the first cycles of each probe on a text; a backend a probe."""
    cycles: list[CycleRecord] = []
    for backend, probe in zip(backends, PROBES, strict=True):
        cost, shape = ProfileCost(backend.profile), backend.geometry
        loop = DecodeLoop(backend, policy_from(probe), cost, Uniform(shape), Identity())
        stream = loop.stream(next(backend.requests()))
        next(stream)  # the prefill
        for _, record in zip(range(num_cycles), stream, strict=False):
            assert isinstance(record, CycleRecord), "cycles follow the prefill"
            cycles.append(record)
        stream.close()
    return fitted(cycles, shape.expert_bytes)


def fitted(cycles: Sequence[CycleRecord], expert_bytes: int) -> HardwareProfile:
    """Fit the seconds of passes on nodes, experts and misses together.

    Computing hits hides some of the reading, so that a hit adds less than its compute and a miss
    more than its wait: what is fitted is what each adds to the whole.
    """
    answers = [cycle.outcome.verification for cycle in cycles]
    nodes = [len(answer.nodes) for answer in answers]
    misses = np.array([answer.num_misses.sum() for answer in answers], float)
    experts = misses + [answer.num_hits.sum() for answer in answers]
    seconds = np.array([answer.stall_s + answer.compute_s for answer in answers])
    design = np.column_stack([np.ones(len(cycles)), nodes, experts, misses])
    fixed_s, node_s, expert_s, copy_s = fit_nonnegative(design, seconds)
    return HardwareProfile(
        name="this-machine-ssd",
        provenance=f"{len(cycles)} forced cycles over experts on disk, texts to tune on",
        kind="measured",
        first_level_s=0.0,
        level_s=0.0,
        verify_fixed_s=float(fixed_s),
        verify_node_s=float(node_s),
        resident_expert_s=float(expert_s),
        copy_latency_s=0.0,
        h2d_bandwidth_bytes_per_s=float(expert_bytes / max(copy_s, 1e-9)),
        expert_bytes=expert_bytes,
    )


def simulated(
    trace: TraceReader, policy: str, cache: str, profile: HardwareProfile, inputs: Inputs
) -> list[DecodeResult]:
    """Return what the simulator makes of a trace."""
    return list(
        replay(
            trace,
            policy_from(policy),
            make_cache(cache, trace.metadata.geometry),
            profile,
            cost=ProfileCost(profile),
            predictor=inputs.predictor,
            acceptance=inputs.acceptance,
        )
    )


def tuned(trace: TraceReader, cache: str, profile: HardwareProfile) -> str:
    """Return the tree of the grid that is fastest on a trace, in simulated seconds."""
    blind = Inputs(Uniform(trace.metadata.geometry), Identity())

    def speed(spec: str) -> float:
        results = simulated(trace, spec, cache, profile, blind)
        return measure(results, profile.expert_bytes).tokens_per_s

    return max(GRID, key=speed)
