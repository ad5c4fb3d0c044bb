"""Replays one cell of the comparison, and what it comes to at a bandwidth."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from functools import cache, cached_property, lru_cache
from pathlib import Path

from benchmarks.policy_grid import OURS, rival_of
from benchmarks.policy_worlds import inputs_of, machine_for, share_of_machine
from specfit.cli.inputs import Inputs
from specfit.cli.specs import policy_from
from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeResult
from specfit.core.policy import Cycle, Outcome, Policy
from specfit.core.profile import HardwareProfile
from specfit.core.search import warm_up
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan
from specfit.sim.metrics import measure
from specfit.sim.oracle import Oracle
from specfit.sim.replay import replay
from specfit.sim.sweep import Cell, Row
from specfit.sim.trace import TraceReader
from specfit.sim.trace.decode import RowTable
from specfit.sim.trace.parts import Part
from specfit.sim.trace.reader import RecordedPrompt

KNOWING = f"{OURS}, true experts"
"""The same search, price and discount with the routing known: what a perfect predictor is worth."""

_RUN: set[tuple[str, str]] = set()
"""Traces and policies that this process has run once."""


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


class KeptTrace(TraceReader):
    """A trace that stays in memory: hundreds of replays would spend their time decoding it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._tables: dict[tuple[Part, int, int], list[tuple[int, RowTable]]] = {}

    @cached_property
    def _prompts(self) -> list[RecordedPrompt]:
        return list(super().prompts())

    def prompts(self) -> Iterator[RecordedPrompt]:
        """Yield the prompts in order."""
        return iter(self._prompts)

    def part_tables(self, part: Part, first: int, count: int) -> Iterator[tuple[int, RowTable]]:
        """Yield rows ``first`` to ``first + count - 1`` of a part, by row group."""
        place = part, first, count
        if place not in self._tables:
            found = list(super().part_tables(part, first, count))
            for _, table in found:
                table.row = cache(table.row)  # type: ignore[method-assign]
            self._tables[place] = found
        return iter(self._tables[place])


@lru_cache(maxsize=2)
def reader_of(trace: str) -> KeptTrace:
    """Return the reader of a trace; opened once a process."""
    warm_up()
    return KeptTrace(Path(trace))


def evaluate(cell: Cell) -> Row:
    """Return the counts of a replayed cell; the machine's own link serves where none is named."""
    started = time.process_time()
    reader = reader_of(cell.trace)
    geometry = reader.metadata.geometry
    machine = machine_for(geometry)
    if cell.h2d_bandwidth_bytes_per_s is not None:
        machine = replace(machine, h2d_bandwidth_bytes_per_s=cell.h2d_bandwidth_bytes_per_s)
    if (cell.trace, rival_of(cell.policy)) not in _RUN:  # what is timed next is compiled
        _RUN.add((cell.trace, rival_of(cell.policy)))
        decoded(reader, *_chosen(cell), cell.cache, machine, texts=1)
    policy, results = decoded(reader, *_chosen(cell), cell.cache, machine)
    metrics = measure(results, machine.expert_bytes)
    return {
        "num_committed": metrics.num_committed,
        "num_cycles": metrics.num_cycles,
        "num_verified": metrics.num_verified,
        "num_levels": metrics.num_levels,
        "num_misses": metrics.num_misses,
        "moving_s": metrics.decode_s - metrics.stall_s,
        "deciding_s": policy.seconds,
        "replay_s": time.process_time() - started,
    }


def _chosen(cell: Cell) -> tuple[Policy, Inputs]:
    """Return a cell's policy and its inputs: the world's, or `specfit` with the routing known."""
    inputs = inputs_of(str(Path(cell.trace).parent), cell.trace)
    if cell.policy == KNOWING:
        return policy_from(OURS), replace(inputs, predictor=Oracle())
    return policy_from(cell.policy), inputs


def decoded(
    reader: KeptTrace,
    policy: Policy,
    inputs: Inputs,
    cache_spec: str,
    machine: HardwareProfile,
    texts: int | None = None,
) -> tuple[Timed, list[DecodeResult]]:
    """Replay the first texts of a trace, or all; return the policy with its seconds, and what came.

    Parameters
    ----------
    cache_spec : str
        Of the expert cache.
    machine : HardwareProfile
        Where the simulated seconds come from, and what the policy believes.
    """
    timed = Timed(policy)
    results = replay(
        reader,
        timed,
        make_cache(cache_spec, reader.metadata.geometry),
        machine,
        cost=ProfileCost(machine),
        predictor=inputs.predictor,
        acceptance=inputs.acceptance,
        max_prompts=texts,
    )
    return timed, list(results)


def tokens_per_s(row: Row, bandwidth: float, trace: str) -> float:
    """Return the simulated tokens a second of a row at a bandwidth, deciding paid for."""
    geometry = reader_of(trace).metadata.geometry
    copy_s = replace(machine_for(geometry), h2d_bandwidth_bytes_per_s=bandwidth).copy_s
    seconds = row["moving_s"] + row["num_misses"] * copy_s
    seconds += row["deciding_s"] * share_of_machine(geometry)
    return float(row["num_committed"] / seconds)
