"""What this machine takes for passes over experts on disk, measured on texts to tune on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from specfit.backends.calibrate import fit_nonnegative
from specfit.cli.inputs import Inputs
from specfit.cli.specs import policy_from
from specfit.core.backend import Request
from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.decode import CycleRecord, DecodeLoop, DecodeResult
from specfit.core.profile import HardwareProfile
from specfit.policies.acceptance.identity import Identity
from specfit.policies.predictors.uniform import Uniform
from specfit.sim.forced_backend import ForcedBackend
from specfit.sim.metrics import measure
from specfit.sim.replay_backend import ReplayBackend
from specfit.sim.trace import TraceReader

PROBES = (
    "autoregressive",
    "eagle3:depth=4,top_k=1,max_nodes=5",
    "eagle3:depth=2,top_k=1,max_nodes=3",
)
"""Trees of the sizes that pay, so that nodes, experts and misses vary apart."""

GRID = (
    *(f"eagle3:depth={d},top_k=1,max_nodes={d + 1}" for d in (1, 2, 3, 4, 6)),
    *(f"eagle3:depth={d},top_k=2,max_nodes={n}" for d in (1, 2, 4, 6) for n in (3, 5, 8)),
    *(f"eagle3:depth={d},top_k=4,max_nodes={n}" for d in (3, 5, 6) for n in (6, 12, 24, 48)),
    "eagle3:depth=4,top_k=8,max_nodes=60",
)
"""What EAGLE-3 is tuned over."""


def unmeasured(expert_bytes: int) -> HardwareProfile:
    """Return made-up constants to probe with: copies take a second and all else next to nothing."""
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


def probed(backend: ForcedBackend, num_cycles: int) -> list[CycleRecord]:
    """Return the first cycles of each probe on the first text, one probe after the other."""
    records = []
    for probe in PROBES:
        cost, shape = ProfileCost(backend.profile), backend.geometry
        loop = DecodeLoop(backend, policy_from(probe), cost, Uniform(shape), Identity())
        events = islice(loop.stream(next(backend.requests())), 1 + num_cycles)
        records += [event for event in events if isinstance(event, CycleRecord)]
    return records


def fitted(cycles: Sequence[CycleRecord], expert_bytes: int) -> HardwareProfile:
    """Fit the seconds of computing on nodes and experts, and those of waiting on misses.

    Apart, since the drift of a disk's speed would otherwise be fitted as fixed seconds of a pass,
    and trees be tuned too large. A copy takes the median of waiting over misses: reading that
    computing hides is no part of it.
    """
    answers = [cycle.outcome.verification for cycle in cycles]
    misses = np.array([answer.num_misses.sum() for answer in answers], float)
    experts = misses + [answer.num_hits.sum() for answer in answers]
    nodes = [len(answer.nodes) for answer in answers]
    design = np.column_stack([np.ones(len(cycles)), nodes, experts])
    compute_s = np.array([answer.compute_s for answer in answers])
    fixed_s, node_s, expert_s = fit_nonnegative(design, compute_s)
    waits = misses > 0
    waited_s = np.array([answer.stall_s for answer in answers])[waits]
    copy_s = float(np.median(waited_s / misses[waits])) if waits.any() else 0.0
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
    trace: TraceReader,
    request: Request,
    policy: str,
    cache: str,
    profile: HardwareProfile,
    inputs: Inputs,
) -> DecodeResult:
    """Return what the simulator makes of one text of a trace."""
    backend = ReplayBackend(trace, make_cache(cache, trace.metadata.geometry), profile)
    cost = ProfileCost(profile)
    loop = DecodeLoop(backend, policy_from(policy), cost, inputs.predictor, inputs.acceptance)
    return loop.run(request)


@dataclass(frozen=True)
class Tuned:
    """The trees of the grid that are fastest in simulated seconds.

    Parameters
    ----------
    for_all : str
        On the texts of all tasks together.
    apart : dict
        On those of each task, by name.
    """

    for_all: str
    apart: dict[str, str]


def tuned(traces: Mapping[str, TraceReader], cache: str, profile: HardwareProfile) -> Tuned:
    """Return the best trees for some tasks' texts; a task with more tokens does not count more."""
    seconds = {
        task: {tree: _seconds_a_token(trace, tree, cache, profile) for tree in GRID}
        for task, trace in traces.items()
    }
    apart = {task: min(GRID, key=lambda tree: found[tree]) for task, found in seconds.items()}
    return Tuned(min(GRID, key=lambda tree: sum(f[tree] for f in seconds.values())), apart)


def _seconds_a_token(
    trace: TraceReader, policy: str, cache: str, profile: HardwareProfile
) -> float:
    blind = Inputs(Uniform(trace.metadata.geometry), Identity())
    results = [
        simulated(trace, prompt.request, policy, cache, profile, blind)
        for prompt in trace.prompts()
    ]
    return 1 / measure(results, profile.expert_bytes).tokens_per_s
