"""Writing and reading: the identity on good traces, a named error on all others."""

from __future__ import annotations

import errno
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from shutil import copytree
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specfit.core.backend import Request
from specfit.core.decode import DecodeLoop
from specfit.core.errors import TraceFormatError, TraceWriteError
from specfit.sim.record_run import RunRecorder
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
from specfit.testing.toy import toy_backend
from tests.unit.sim.traces import CACHE, POLICY, REQUESTS, parts, write_run


class Remember(RunRecorder):
    """Keeps the rows that it writes."""

    def __init__(self, writer: TraceWriter) -> None:
        super().__init__(writer)
        self.rows: list[CycleRow] = []
        add = writer.add

        def keep(row: Any) -> None:
            self.rows.append(row)
            add(row)

        writer.add = keep  # type: ignore[method-assign]


def assert_equal(ours: Any, theirs: Any) -> None:
    if isinstance(ours, np.ndarray):
        np.testing.assert_array_equal(ours, theirs)
        assert ours.dtype == theirs.dtype
    elif is_dataclass(ours) and not isinstance(ours, type):
        assert type(ours) is type(theirs)
        for field in fields(ours):
            assert_equal(getattr(ours, field.name), getattr(theirs, field.name))
    else:
        assert ours == theirs


def rows_file(folder: Path, number: int = 0) -> Path:
    (path,) = folder.glob(f"cycles-{number:06d}-*.parquet")
    return path


def with_right_checksum(path: Path) -> Path:
    table, number, _ = path.name.split("-")
    return path.rename(path.with_name(f"{table}-{number}-{checksum_of(path)}.parquet"))


def read_all(folder: Path) -> int:
    return sum(1 for prompt in TraceReader(folder).prompts() for _ in prompt.rows())


def test_what_is_written_is_read(tmp_path: Path) -> None:
    backend = toy_backend(CACHE)
    with TraceWriter.create(tmp_path / "t", metadata_of(backend, "run")) as writer:
        recorder = Remember(writer)
        loop = DecodeLoop(backend, POLICY, **parts(backend), observers=[recorder])
        results = [loop.run(request) for request in REQUESTS]
    prompts = list(TraceReader(tmp_path / "t").prompts())
    read = [row for prompt in prompts for row in prompt.rows()]
    assert len(read) == len(recorder.rows) > 10
    for ours, theirs in zip(recorder.rows, read, strict=True):
        assert_equal(ours, theirs)
    for prompt, result in zip(prompts, results, strict=True):
        assert prompt.request == result.request
        assert (prompt.text, prompt.stop_reason) == (result.tokens, result.stop_reason)
        np.testing.assert_array_equal(prompt.row.routing, result.prefill.routing)


def test_parts_and_row_groups_do_not_change_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_run(tmp_path / "one", part_bytes=2**30)
    monkeypatch.setattr("specfit.sim.trace.writer.ROW_GROUP_BYTES", 100)
    write_run(tmp_path / "many", part_bytes=1)
    one, many = TraceReader(tmp_path / "one"), TraceReader(tmp_path / "many")
    assert (len(one.parts), len(many.parts)) == (1, len(REQUESTS))
    assert pq.ParquetFile(rows_file(tmp_path / "many")).num_row_groups > 1
    for ours, theirs in zip(one.prompts(), many.prompts(), strict=True):
        for a, b in zip(ours.rows(), theirs.rows(), strict=True):
            assert_equal(a, b)


def test_a_prompt_without_cycles_is_kept(tmp_path: Path) -> None:
    write_run(tmp_path / "t", requests=[Request((1, 2), 1), *REQUESTS])
    first = next(TraceReader(tmp_path / "t").prompts())
    assert (len(first.text), first.stop_reason, list(first.rows())) == (1, "length", [])
    assert check_trace(tmp_path / "t").is_good


def test_an_existing_path_is_not_written_over(tmp_path: Path) -> None:
    with pytest.raises(TraceWriteError, match="exists already"):
        TraceWriter.create(tmp_path, metadata_of(toy_backend(), "run"))


def test_a_recording_that_fails_keeps_its_finished_parts(tmp_path: Path) -> None:
    backend = toy_backend(CACHE)
    folder = tmp_path / "t"
    with (
        pytest.raises(KeyboardInterrupt),
        TraceWriter.create(folder, metadata_of(backend, "run"), part_bytes=1) as writer,
    ):
        loop = DecodeLoop(backend, POLICY, **parts(backend), observers=[RunRecorder(writer)])
        loop.run(REQUESTS[0])
        stream = loop.stream(REQUESTS[1])
        next(stream), next(stream)
        raise KeyboardInterrupt
    trace = TraceReader(folder)
    assert [p.request for p in trace.prompts()] == [REQUESTS[0]]
    assert "prompts from 1 on are missing" in trace.missing[0]


def test_a_recording_that_fails_before_its_first_prompt_leaves_nothing(tmp_path: Path) -> None:
    backend = toy_backend(CACHE)
    folder = tmp_path / "t"
    with (
        pytest.raises(KeyboardInterrupt),
        TraceWriter.create(folder, metadata_of(backend, "run")) as writer,
    ):
        loop = DecodeLoop(backend, POLICY, **parts(backend), observers=[RunRecorder(writer)])
        next(loop.stream(REQUESTS[0]))
        raise KeyboardInterrupt
    assert not folder.exists()


def test_a_cancelled_request_is_dropped_and_the_next_one_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specfit.sim.trace.writer.ROW_GROUP_BYTES", 1)
    backend = toy_backend(CACHE)
    folder = tmp_path / "t"
    with TraceWriter.create(folder, metadata_of(backend, "run")) as writer:
        loop = DecodeLoop(backend, POLICY, **parts(backend), observers=[RunRecorder(writer)])
        loop.run(REQUESTS[0])
        stream = loop.stream(REQUESTS[1])
        next(stream), next(stream)
        stream.close()
        loop.run(REQUESTS[2])
    assert [p.request for p in TraceReader(folder).prompts()] == [REQUESTS[0], REQUESTS[2]]
    assert check_trace(folder).is_good


def test_a_full_disk_is_one_clear_error_and_the_parts_remain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, backend = tmp_path / "t", toy_backend(CACHE)
    write_table = pq.ParquetWriter.write_table

    def full(self: pq.ParquetWriter, table: pa.Table) -> None:
        if len(list(folder.glob("prompts-*"))) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        write_table(self, table)

    monkeypatch.setattr(pq.ParquetWriter, "write_table", full)
    with (
        pytest.raises(TraceWriteError, match=r"No space left on device.*remain readable"),
        TraceWriter.create(folder, metadata_of(backend, "run"), part_bytes=1) as writer,
    ):
        loop = DecodeLoop(backend, POLICY, **parts(backend), observers=[RunRecorder(writer)])
        for request in REQUESTS:
            loop.run(request)
    trace = TraceReader(folder)
    assert trace.num_prompts == len(list(trace.prompts())) == 2
    assert trace.metadata.num_prompts is None


def test_a_flipped_bit_is_found(tmp_path: Path, run_trace: Path) -> None:
    copytree(run_trace, tmp_path / "t")
    path = rows_file(tmp_path / "t", 1)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(TraceFormatError, match="it is damaged") as caught:
        read_all(tmp_path / "t")
    assert str(path) in str(caught.value)
    report = check_trace(tmp_path / "t")
    assert report.good_prompts == (0, 2)
    assert (report.num_expected, len(report.problems)) == (3, 1)


def test_a_damaged_page_names_its_row_group(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("specfit.sim.trace.writer.ROW_GROUP_BYTES", 100)
    write_run(tmp_path / "t")
    path = rows_file(tmp_path / "t")
    start = pq.ParquetFile(path).metadata.row_group(1).column(0).data_page_offset
    size = pq.ParquetFile(path).metadata.row_group(1).column(0).total_compressed_size
    data = bytearray(path.read_bytes())
    data[start + size - 1] ^= 1
    path.write_bytes(data)
    with_right_checksum(path)
    with pytest.raises(TraceFormatError, match="row group 1"):
        read_all(tmp_path / "t")


def test_repair_writes_the_good_part(tmp_path: Path) -> None:
    write_run(tmp_path / "t")
    whole = TraceReader(tmp_path / "t")
    kept = [list(p.rows()) for p in whole.prompts() if p.index != 1]
    rows_file(tmp_path / "t", 1).unlink()
    with pytest.raises(TraceFormatError, match="part 1 is missing"):
        read_all(tmp_path / "t")
    report = repair_trace(tmp_path / "t", tmp_path / "good")
    assert report.good_prompts == (0, 2)
    assert check_trace(tmp_path / "good").is_good
    repaired = [list(p.rows()) for p in TraceReader(tmp_path / "good").prompts()]
    for number, (ours, theirs) in enumerate(zip(kept, repaired, strict=True)):
        for a, b in zip(ours, theirs, strict=True):
            assert_equal(replace(a, prompt=number), b)


def test_stripping_removes_every_decision(tmp_path: Path, run_trace: Path) -> None:
    strip_decisions(run_trace, tmp_path / "bare")
    rows = [r for p in TraceReader(tmp_path / "bare").prompts() for r in p.rows()]
    assert rows
    assert all(isinstance(row, CycleRow) and row.decisions is None for row in rows)


def test_a_position_trace_cannot_be_stripped(tmp_path: Path, positions_trace: Path) -> None:
    with pytest.raises(TraceFormatError, match="must be a run trace"):
        strip_decisions(positions_trace, tmp_path / "bare")


def change_column(path: Path, name: str, change: Any) -> None:
    """Replace a column of a part, keep the checksum right."""
    table = pq.read_table(path)
    column = change(table.column(name).to_pylist())
    kind = table.schema.field(name).type
    changed = table.set_column(table.schema.get_field_index(name), name, pa.array(column, kind))
    pq.write_table(changed, path)
    with_right_checksum(path)


def first(value: Any) -> Any:
    return lambda column: [value, *column[1:]]


def first_of(change: Any) -> Any:
    return lambda column: [change(column[0]), *column[1:]]


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("prompt", first(5), "row of prompt 5 lies among"),
        ("position", first(10**6), "must ascend"),
        ("position", lambda c: [*c[:-1], 10**6], "outside the text"),
        ("position", first(10), "must be the text's token"),
        ("tokens", first_of(lambda c: [10**6, *c[1:]]), "tokens must be 0 to 31"),
        ("tokens", first_of(lambda c: c[:-1]), "parents must hold"),
        ("tokens", first_of(lambda c: [(c[0] + 1) % 32, *c[1:]]), "must be the text's token"),
        ("parents", first_of(lambda c: [-1, 5, *c[2:]]), "must come before its child"),
        ("log_probs", first_of(lambda c: [0.0, 0.5, *c[2:]]), "log of a probability"),
        ("margins", first_of(lambda c: [float("nan"), *c[1:]]), "margins must be 0 or more"),
        ("routing", first_of(lambda c: c[:-1]), "bytes a token"),
        ("routing", first_of(lambda c: b"\x10" + c[1:]), "expert ids are 0 to 15; got 16"),
        ("routing", first_of(lambda c: c + c), "there must be"),
        ("answered", first_of(lambda c: c[1:]), "start with node 0"),
        ("answered", first_of(lambda c: [0, *c[:-1]]), "must ascend"),
        ("answered", first_of(lambda c: [*c[:-1], 999]), "answered must be"),
        ("selected", first_of(lambda c: [0, 30]), "without its parent"),
        ("selected", first(None), "all present or all absent"),
        ("num_hits", first_of(lambda c: c[1:]), "must hold 4 layers"),
        ("num_misses", first_of(lambda c: [-1, *c[1:]]), "num_misses must be"),
        ("committed", first_of(lambda c: [c[0] + 1]), "must commit the tokens"),
        ("cycle", first(7), "cycle 0 must come next"),
        ("plan_depth", first(-1), "depth must be 0 or more"),
        ("stall_s", first(float("inf")), "stall_s must be finite"),
    ],
)
def test_a_wrong_value_with_a_right_checksum_is_refused(
    tmp_path: Path, run_trace: Path, name: str, change: Any, message: str
) -> None:
    copytree(run_trace, tmp_path / "t")
    path = rows_file(tmp_path / "t")
    change_column(path, name, change)
    with pytest.raises(TraceFormatError, match=message) as caught:
        read_all(tmp_path / "t")
    assert "cycles-000000" in str(caught.value)
    assert "row group 0" in str(caught.value)
    assert 0 not in check_trace(tmp_path / "t").good_prompts


@pytest.mark.parametrize("change", ["unknown", "missing", "type"])
def test_other_columns_are_refused(tmp_path: Path, run_trace: Path, change: str) -> None:
    copytree(run_trace, tmp_path / "t")
    path = rows_file(tmp_path / "t")
    table = pq.read_table(path)
    if change == "unknown":
        table = table.append_column("colour", pa.array([1] * len(table)))
    elif change == "missing":
        table = table.drop_columns(["margins"])
    else:
        index = table.schema.get_field_index("cycle")
        table = table.set_column(index, "cycle", table.column("cycle").cast(pa.int64()))
    pq.write_table(table, path)
    with_right_checksum(path)
    messages = {"unknown": "unknown: colour", "missing": "missing: margins", "type": "be int32"}
    with pytest.raises(TraceFormatError, match=messages[change]):
        read_all(tmp_path / "t")


def test_swapped_parts_are_found(tmp_path: Path, run_trace: Path) -> None:
    copytree(run_trace, tmp_path / "t")
    one, two = rows_file(tmp_path / "t", 0), rows_file(tmp_path / "t", 1)
    ones, twos = one.name.replace("000000", "000001"), two.name.replace("000001", "000000")
    one.rename(tmp_path / "t" / ones), two.rename(tmp_path / "t" / twos)
    with pytest.raises(TraceFormatError, match="lies among those of"):
        read_all(tmp_path / "t")


def test_lost_prompts_of_a_finished_trace_are_counted(tmp_path: Path, run_trace: Path) -> None:
    copytree(run_trace, tmp_path / "t")
    for path in (tmp_path / "t").glob("*-000002-*"):
        path.unlink()
    assert TraceReader(tmp_path / "t").missing == ["3 prompts were recorded, 2 are there"]
    with pytest.raises(TraceFormatError, match="3 prompts were recorded, 2 are there"):
        read_all(tmp_path / "t")


def test_a_text_without_all_its_positions_is_refused(tmp_path: Path, positions_trace: Path) -> None:
    copytree(positions_trace, tmp_path / "t")
    (path,) = (tmp_path / "t").glob("prompts-000000-*")
    change_column(path, "text", first_of(lambda text: text[:-1]))
    with pytest.raises(TraceFormatError, match=r"a row for each but the last"):
        read_all(tmp_path / "t")
