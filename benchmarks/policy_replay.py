"""Replays one cell of the comparison, and what it comes to at a bandwidth."""

from __future__ import annotations

import time
from dataclasses import replace
from functools import cache
from pathlib import Path

from benchmarks.policy_grid import OURS
from benchmarks.policy_worlds import inputs_of, machine_for, share_of_machine
from specfit.cli.specs import policy_from
from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.policy import Cycle, Outcome, Policy
from specfit.core.search import warm_up
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan
from specfit.sim.metrics import measure
from specfit.sim.oracle import Oracle
from specfit.sim.replay import replay
from specfit.sim.sweep import Cell, Row
from specfit.sim.trace import TraceReader

KNOWING = f"{OURS}, true experts"
"""The same search, price and discount with the routing known: what a perfect predictor is worth."""


class Timed(Policy):
    """Passes every call on to a policy and adds up the processor seconds that it takes."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.is_reference = policy.is_reference  # type: ignore[misc]
        self.seconds = 0.0

    def plan(self, cycle: Cycle) -> DraftPlan:
        with self:
            return self.policy.plan(cycle)

    def after_level(self, cycle: Cycle) -> bool:
        with self:
            return self.policy.after_level(cycle)

    def select(self, cycle: Cycle) -> Selection:
        with self:
            return self.policy.select(cycle)

    def observe(self, outcome: Outcome) -> None:
        with self:
            self.policy.observe(outcome)

    def reset(self) -> None:
        self.policy.reset()

    def __enter__(self) -> None:
        self.started = time.thread_time()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.thread_time() - self.started


@cache
def reader_of(trace: str) -> TraceReader:
    """Return the reader of a trace; opened once a process."""
    warm_up()
    return TraceReader(Path(trace))


def evaluate(cell: Cell) -> Row:
    """Return the counts of a replayed cell; the machine's own link serves where none is named."""
    reader = reader_of(cell.trace)
    geometry = reader.metadata.geometry
    machine = machine_for(geometry)
    if cell.h2d_bandwidth_bytes_per_s is not None:
        machine = replace(machine, h2d_bandwidth_bytes_per_s=cell.h2d_bandwidth_bytes_per_s)
    inputs = inputs_of(str(Path(cell.trace).parent), cell.trace)
    knows = cell.policy == KNOWING
    policy = Timed(policy_from(OURS if knows else cell.policy))
    results = list(
        replay(
            reader,
            policy,
            make_cache(cell.cache, geometry),
            machine,
            cost=ProfileCost(machine),
            predictor=Oracle() if knows else inputs.predictor,
            acceptance=inputs.acceptance,
        )
    )
    metrics = measure(results, machine.expert_bytes)
    return {
        "num_committed": metrics.num_committed,
        "num_cycles": metrics.num_cycles,
        "num_verified": metrics.num_verified,
        "num_levels": metrics.num_levels,
        "num_misses": metrics.num_misses,
        "moving_s": metrics.decode_s - metrics.stall_s,
        "deciding_s": policy.seconds,
    }


def tokens_per_s(row: Row, bandwidth: float, trace: str) -> float:
    """Return the simulated tokens a second of a row at a bandwidth."""
    geometry = reader_of(trace).metadata.geometry
    copy_s = replace(machine_for(geometry), h2d_bandwidth_bytes_per_s=bandwidth).copy_s
    seconds = row["moving_s"] + row["num_misses"] * copy_s
    if row["policy"] == OURS:
        seconds += row["deciding_s"] * share_of_machine(geometry)
    return float(row["num_committed"] / seconds)
