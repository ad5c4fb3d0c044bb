"""Recorders write what happened, and ask of a backend only what its interface promises."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specfit.core.backend import Request, Verification
from specfit.core.decode import DecodeLoop
from specfit.core.errors import InvalidInputError, InvalidTreeError, TraceFormatError
from specfit.core.selection import Selection
from specfit.core.tree import DraftLevel, DraftPlan, DraftTree
from specfit.policies import Eagle3
from specfit.sim.record_positions import record_positions
from specfit.sim.record_run import RunRecorder
from specfit.sim.trace import CycleRow, PositionRow, TraceReader, TraceWriter, metadata_of
from specfit.testing.toy import ToyBackend, toy_backend
from tests.unit.sim.traces import CACHE, PLANS, POLICY, REQUESTS, parts, replayed, write_run


class DryBackend(ToyBackend):
    """A toy whose drafter has nothing to add below depth 2."""

    def draft_level(self, plan: DraftPlan, tree: DraftTree) -> DraftLevel:
        level = super().draft_level(plan, tree)
        if tree.num_levels < 2:
            return level
        return level.take(slice(0))


class WatchedBackend(ToyBackend):
    """A toy that notes the nodes of every pass."""

    def __init__(self, like: ToyBackend) -> None:
        super().__init__(like.model, like.cache, like.profile)
        self.widths: list[int] = []

    def verify(self, tree: DraftTree, selection: Selection) -> Verification:
        self.widths.append(len(selection))
        return super().verify(tree, selection)


def dry_backend() -> DryBackend:
    toy = toy_backend(CACHE)
    return DryBackend(toy.model, toy.cache, toy.profile)


def test_a_run_row_holds_its_cycle(tmp_path: Path) -> None:
    results = write_run(tmp_path / "run")
    for prompt, result in zip(TraceReader(tmp_path / "run").prompts(), results, strict=True):
        position = len(result.request.prompt)
        for row, record in zip(prompt.rows(), result.cycles, strict=True):
            assert isinstance(row, CycleRow)
            assert row.decisions is not None
            assert row.position == position
            assert row.plan == record.outcome.cycle.plan
            assert row.timings == record.timings
            np.testing.assert_array_equal(row.tree.log_probs, record.outcome.cycle.tree.log_probs)
            np.testing.assert_array_equal(row.decisions.selected, record.outcome.selection.nodes)
            assert tuple(row.decisions.committed.tolist()) == record.outcome.committed
            position += len(record.outcome.committed)


def test_a_drafter_that_runs_dry_is_recorded_and_replayed(tmp_path: Path) -> None:
    backend = dry_backend()
    with TraceWriter.create(tmp_path / "run", metadata_of(backend, "run")) as writer:
        loop = DecodeLoop(backend, POLICY, **parts(backend), observers=[RunRecorder(writer)])
        live = [loop.run(request) for request in REQUESTS]
    with TraceWriter.create(
        tmp_path / "positions", metadata_of(backend, "positions", PLANS)
    ) as writer:
        record_positions(backend, REQUESTS, PLANS, writer)
    rows = [row for p in TraceReader(tmp_path / "run").prompts() for row in p.rows()]
    assert any(isinstance(row, CycleRow) and row.is_exhausted for row in rows)
    for kind in ("run", "positions"):
        again = replayed(tmp_path / kind)
        assert [r.tokens for r in again] == [r.tokens for r in live]
        assert [len(c.outcome.selection) for r in again for c in r.cycles] == [
            len(c.outcome.selection) for r in live for c in r.cycles
        ]


def test_each_position_takes_one_wide_pass_and_one_plain_step(tmp_path: Path) -> None:
    backend = WatchedBackend(toy_backend(CACHE))
    metadata = metadata_of(backend, "positions", PLANS)
    seen: list[tuple[int, int]] = []
    with TraceWriter.create(tmp_path / "t", metadata) as writer:
        record_positions(
            backend, REQUESTS, PLANS, writer, lambda prompt, tokens: seen.append((prompt, tokens))
        )
    rows = [row for p in TraceReader(tmp_path / "t").prompts() for row in p.rows()]
    assert all(isinstance(row, PositionRow) for row in rows)
    assert backend.widths[1::2] == [1] * len(rows)
    assert backend.widths[::2] == [len(row.answers) for row in rows]
    assert len(seen) == len(rows)
    assert seen[0] == (0, 2)


def test_no_deeper_than_the_text_goes_on(tmp_path: Path) -> None:
    """At the last position nothing is drafted: its token is the last one."""
    backend = toy_backend(CACHE)
    with TraceWriter.create(tmp_path / "t", metadata_of(backend, "positions", PLANS)) as writer:
        record_positions(backend, [Request((1, 2, 3), 6)], PLANS, writer)
    rows = list(next(TraceReader(tmp_path / "t").prompts()).rows())
    levels = [row.plan_levels for row in rows if isinstance(row, PositionRow)]
    assert levels == [(4, 4), (3, 3), (2, 2), (1, 1), (0, 0)]


def test_a_tree_that_is_not_drawn_by_level_is_refused(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    row = next(next(TraceReader(tmp_path / "run").prompts()).rows())
    assert isinstance(row, CycleRow)
    unordered = DraftTree.from_arrays(
        np.array([-1, 0, 1, 0], np.int32), np.array([1, 0.5, 0.5, 0.5])
    )
    with TraceWriter.create(tmp_path / "t", metadata_of(toy_backend(), "run")) as writer:
        bad = CycleRow(**{**vars(row), "tree": unordered})
        with pytest.raises(InvalidTreeError, match=r"drafted level by level"):
            writer.add(bad)


def test_rows_and_prompts_come_in_order(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    prompts = list(TraceReader(tmp_path / "run").prompts())
    with TraceWriter.create(tmp_path / "t", metadata_of(toy_backend(), "run")) as writer:
        with pytest.raises(TraceFormatError, match=r"rows of prompt 0 come next"):
            writer.add(next(prompts[1].rows()))
        with pytest.raises(TraceFormatError, match=r"prompt 0 comes next"):
            writer.end_prompt(prompts[1].row)


def test_equal_traces_have_equal_fingerprints(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b")
    write_run(tmp_path / "c", policy=Eagle3(3, 3, 8))
    prints = [TraceReader(tmp_path / name).fingerprint for name in "abc"]
    assert prints[0] == prints[1] != prints[2]


def test_a_prompt_that_was_not_run_whole_is_not_recorded(tmp_path: Path) -> None:
    backend = toy_backend(CACHE)
    with TraceWriter.create(tmp_path / "run", metadata_of(backend, "run")) as writer:
        prefill = replace(backend.start(REQUESTS[0]), num_kept=3)
        with pytest.raises(InvalidInputError, match="must be run whole; 3 of its"):
            RunRecorder(writer).on_start(REQUESTS[0], prefill)
