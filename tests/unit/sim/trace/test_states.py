"""The drafter's hidden states in a trace: there when asked for, read as written, else no trace."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specfit.core.errors import InvalidTreeError, TraceCoverageError, TraceFormatError
from specfit.core.tree import DraftTree
from specfit.sim.replay_backend import ReplayBackend
from specfit.sim.trace import (
    CycleRow,
    TraceReader,
    TraceWriter,
    check_trace,
    metadata_of,
    repair_trace,
    strip_decisions,
)
from specfit.sim.trace.parts import checksum_of
from specfit.testing.examples import example_profile
from specfit.testing.toy import toy_backend
from tests.unit.sim.traces import POLICY, REQUESTS, live, replayed, write_positions, write_run

V = toy_backend().geometry.vocab_size


def trees(folder: Path) -> list[DraftTree]:
    rows = (row for prompt in TraceReader(folder).prompts() for row in prompt.rows())
    return [row.tree if isinstance(row, CycleRow) else row.trie for row in rows]


def files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_states_of_a_run_are_read_as_they_were_drafted(tmp_path: Path) -> None:
    results = write_run(tmp_path / "t", with_states=True)
    drafted = [c.outcome.cycle.tree for r in results for c in r.cycles]
    read = trees(tmp_path / "t")
    assert len(read) == len(drafted) > 10
    for ours, theirs in zip(read, drafted, strict=True):
        expected = np.zeros((1, V), np.float32) if len(theirs) == 1 else theirs.states
        assert expected is not None and ours.states is not None
        assert ours.states.tobytes() == expected.tobytes()
    assert check_trace(tmp_path / "t").is_good


def test_states_change_nothing_else(tmp_path: Path) -> None:
    """Neither what a run does nor what a replay makes of it."""
    write_run(tmp_path / "plain")
    results = write_run(tmp_path / "states", with_states=True)
    assert [r.tokens for r in results] == [r.tokens for r in replayed(tmp_path / "states")]
    for ours, theirs in zip(trees(tmp_path / "plain"), trees(tmp_path / "states"), strict=True):
        assert ours.states is None
        assert ours.log_probs.tobytes() == theirs.log_probs.tobytes()


def test_a_trace_that_holds_none_is_as_before(tmp_path: Path) -> None:
    """Also where the backend keeps them, for another's sake."""
    write_run(tmp_path / "plain")
    said = json.loads((tmp_path / "plain" / "metadata.json").read_text("utf-8"))
    assert said["format_version"] == 2
    assert "state_width" not in said
    assert "state_width" not in repr(TraceReader(tmp_path / "plain").metadata)
    write_run(tmp_path / "states", with_states=True)
    said = json.loads((tmp_path / "states" / "metadata.json").read_text("utf-8"))
    assert (said["format_version"], said["state_width"]) == (3, V)
    trace = TraceReader(tmp_path / "states")
    with TraceWriter.create(tmp_path / "dropped", metadata_of(toy_backend("lru:50%"), "run"),
                            part_bytes=1) as writer:  # fmt: skip
        for prompt in trace.prompts():
            for row in prompt.rows():
                writer.add(row)
            writer.end_prompt(prompt.row)
    assert files(tmp_path / "dropped") == files(tmp_path / "plain")


def test_the_states_of_positions_are_those_of_each_plans_tree(tmp_path: Path) -> None:
    write_positions(tmp_path / "t", with_states=True)
    backend = toy_backend("lru:50%")
    backend.keep_states()
    trace = TraceReader(tmp_path / "t")
    replay = ReplayBackend(trace, backend.cache, example_profile())
    assert replay.keep_states() == V
    for request in replay.requests():
        first = replay.start(request).first_token
        backend.start(request)
        for plan in trace.metadata.plans:
            root = DraftTree.root(first)
            ours, theirs = replay.draft(plan, root)[0], backend.draft(plan, root)[0]
            assert ours.tokens.tolist() == theirs.tokens.tolist()
            assert ours.states is not None and theirs.states is not None
            assert ours.states.tobytes() == theirs.states.tobytes()


def test_a_copy_of_a_trace_keeps_them(tmp_path: Path) -> None:
    write_run(tmp_path / "t", with_states=True)
    strip_decisions(tmp_path / "t", tmp_path / "stripped")
    repair_trace(tmp_path / "t", tmp_path / "repaired")
    for copy in ("stripped", "repaired"):
        for ours, theirs in zip(trees(tmp_path / copy), trees(tmp_path / "t"), strict=True):
            assert ours.states is not None and theirs.states is not None
            assert ours.states.tobytes() == theirs.states.tobytes()


def test_a_trace_without_them_says_how_to_record_them(tmp_path: Path) -> None:
    write_run(tmp_path / "t")
    trace = TraceReader(tmp_path / "t")
    replay = ReplayBackend(trace, toy_backend().cache, example_profile())
    with pytest.raises(TraceCoverageError, match=r"holds no hidden states .* Record with --states"):
        replay.keep_states()


def test_what_has_no_states_is_not_written_with_them(tmp_path: Path) -> None:
    metadata = metadata_of(toy_backend(), "run", state_width=V)
    write_run(tmp_path / "plain")
    with (
        pytest.raises(InvalidTreeError, match=r"got a tree without. Call keep_states"),
        TraceWriter.create(tmp_path / "t", metadata) as writer,
    ):
        for prompt in TraceReader(tmp_path / "plain").prompts():
            for row in prompt.rows():
                writer.add(row)


@pytest.mark.parametrize("fault", ["too few", "not a number", "absent", "unexpected"])
def test_wrong_states_are_refused(tmp_path: Path, fault: str) -> None:
    write_run(tmp_path / "t", requests=REQUESTS[:1], with_states=fault != "unexpected")
    (path,) = (tmp_path / "t").glob("cycles-*.parquet")
    table = pq.read_table(path)
    if fault == "unexpected":
        values = pa.array([[0.0]] * len(table), pa.list_(pa.float32()))
        table = table.append_column("states", values)
    elif fault == "absent":
        table = table.drop_columns("states")
    else:
        rows = table["states"].to_pylist()
        rows[0] = rows[0][1:] if fault == "too few" else [float("nan"), *rows[0][1:]]
        at = table.schema.get_field_index("states")
        kind = pa.list_(pa.field("item", pa.float32(), nullable=False))
        table = table.set_column(at, pa.field("states", kind, nullable=False),
                                 pa.array(rows, kind))  # fmt: skip
    pq.write_table(table, path, write_page_checksum=True)
    path.rename(path.with_name(f"cycles-000000-{checksum_of(path)}.parquet"))
    message = {
        "too few": f"states must hold {V} numbers for each of the",
        "not a number": "got NaN or infinity",
        "absent": "missing: states",
        "unexpected": "unknown: states",
    }[fault]
    with pytest.raises(TraceFormatError, match=message):
        trees(tmp_path / "t")


def test_live_and_replayed_runs_agree_with_states_kept(tmp_path: Path) -> None:
    write_run(tmp_path / "t", with_states=True)
    spec = f"eagle3:depth={POLICY.depth},top_k={POLICY.top_k},max_nodes={POLICY.max_nodes}"
    ours, theirs = replayed(tmp_path / "t"), live(spec, "lru:50%")
    assert [r.tokens for r in ours] == [r.tokens for r in theirs]
