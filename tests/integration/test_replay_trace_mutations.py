"""Damaged traces, half of them with right checksums: a named error or a correct read."""

from __future__ import annotations

import json
import os
import resource
import time
from collections import Counter
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import numpy as np
import pytest

from specfit.core.errors import TraceFormatError, TraceWriteError
from specfit.sim.trace import TraceReader
from specfit.sim.trace import writer as writer_module
from specfit.sim.trace.parts import checksum_of
from tests.unit.sim.traces import write_positions, write_run

MEMORY_BYTES = 2**29
"""How much the process may grow over all mutations."""

SECONDS = 5.0
"""How long one damaged trace may keep the processor busy."""


def flip_bits(data: bytearray, rng: np.random.Generator) -> bytearray:
    for at in rng.integers(len(data), size=int(rng.choice([1, 1, 4, 20]))):
        data[at] ^= 1 << int(rng.integers(8))
    return data


def damage_footer(data: bytearray, rng: np.random.Generator) -> bytearray:
    for at in rng.integers(max(0, len(data) - 3000), len(data), size=int(rng.integers(1, 6))):
        data[at] = int(rng.choice([0, 255, 127, 128, rng.integers(256)]))
    return data


def truncate(data: bytearray, rng: np.random.Generator) -> bytearray:
    return data[: rng.integers(len(data))]


def zero(data: bytearray, rng: np.random.Generator) -> bytearray:
    at = int(rng.integers(len(data)))
    size = min(int(rng.integers(1, 200)), len(data) - at)
    data[at : at + size] = bytes(size)
    return data


def repeat(data: bytearray, rng: np.random.Generator) -> bytearray:
    at = int(rng.integers(len(data)))
    return data[: at + 100] + data[at:]


def claim_much(data: bytearray, rng: np.random.Generator) -> bytearray:
    """Put the largest number of the file's own encoding where a size may be."""
    at = int(rng.integers(len(data)))
    number = rng.choice([b"\xff\xff\xff\xff\x0f", b"\xfe\xff\xff\xff\xff\xff\xff\xff\x7f"])
    data[at : at + len(number)] = number
    return data


MUTATIONS = [flip_bits, damage_footer, truncate, zero, repeat, claim_much]

HOSTILE_VALUES: list[Any] = [
    None, True, -1, 0, 2**31, 2**63, 10**400, 1e308, "", "x" * 10_000, "/etc/passwd",
    "../../../etc/passwd", "\x00", "\ud800", [], [[[[]]]], {}, {"a": {"b": [1] * 1000}},
    [10**9] * 50,
]  # fmt: skip


def mutate_metadata(folder: Path, rng: np.random.Generator) -> None:
    """Change, drop or add one value anywhere in `metadata.json`, or the version."""
    path = folder / "metadata.json"
    table = json.loads(path.read_text("utf-8"))
    if rng.random() < 0.2:
        table["format_version"] = HOSTILE_VALUES[int(rng.integers(len(HOSTILE_VALUES)))]
    else:
        place: Any = table
        while True:
            key = sorted(place)[int(rng.integers(len(place)))]
            if not isinstance(place[key], dict) or not place[key] or rng.random() < 0.3:
                break
            place = place[key]
        action = rng.random()
        if action < 0.6:
            place[key] = HOSTILE_VALUES[int(rng.integers(len(HOSTILE_VALUES)))]
        elif action < 0.8:
            del place[key]
        else:
            place[str(rng.choice(["/abs", "../up", "", "prompts-000000"]))] = place[key]
    path.write_text(json.dumps(table), "utf-8")


def rename(folder: Path, rng: np.random.Generator) -> None:
    """Give a file another number or name, or put a link to elsewhere in its place."""
    path = sorted(folder.iterdir())[int(rng.integers(len(list(folder.iterdir()))))]
    names = (
        path.name.replace("-00000", "-99999"),
        path.name.replace("prompts", "cycles"),
        path.name.replace(".parquet", ".parquet.parquet"),
        "..parquet",
    )
    kind = int(rng.integers(6))
    if kind < 4:
        path.rename(path.with_name(names[kind]))
    else:
        path.unlink()
        path.symlink_to(["/dev/zero", "../../nowhere"][kind - 4])


def mutate(folder: Path, rng: np.random.Generator) -> str:
    """Damage one file, or exchange two; half of the time make the checksums right again."""
    paths = sorted(folder.iterdir())
    path = paths[int(rng.integers(len(paths)))]
    kind = int(rng.integers(len(MUTATIONS) + 3))
    if kind == len(MUTATIONS):
        other = paths[int(rng.integers(len(paths)))]
        ours, theirs = path.read_bytes(), other.read_bytes()
        path.write_bytes(theirs), other.write_bytes(ours)
    elif kind == len(MUTATIONS) + 1:
        mutate_metadata(folder, rng)
        return "other metadata"
    elif kind == len(MUTATIONS) + 2:
        rename(folder, rng)
        return "other names"
    else:
        path.write_bytes(MUTATIONS[kind](bytearray(path.read_bytes()), rng))
    if rng.random() < 0.5:
        for damaged in folder.glob("*.parquet"):
            table, number, _ = damaged.name.split("-")
            name = f"{table}-{number}-{checksum_of(damaged)}.parquet"
            damaged.rename(damaged.with_name(name))
        return "right checksum"
    return "wrong checksum"


def contents(folder: Path) -> list[tuple[int, int, bytes]]:
    trace = TraceReader(folder)
    return [
        (prompt.index, row.position, row.answers.routing.tobytes())
        for prompt in trace.prompts()
        for row in prompt.rows()
    ]


@pytest.mark.parametrize(
    ("kind", "num_mutations"),
    [
        ("run", 100),
        ("positions", 40),
        pytest.param("run", 5000, marks=pytest.mark.slow),
        pytest.param("positions", 5000, marks=pytest.mark.slow),
    ],
)
def test_a_mutated_trace_is_refused_or_read_right(
    tmp_path: Path, kind: str, num_mutations: int
) -> None:
    rng = np.random.default_rng(num_mutations)
    whole = tmp_path / "whole"
    write_run(whole) if kind == "run" else write_positions(whole)
    right = contents(whole)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seen: Counter[str] = Counter()
    slowest_s = 0.0
    for _ in range(num_mutations):
        damaged = tmp_path / "damaged"
        copytree(whole, damaged)
        change = mutate(damaged, rng)
        started = time.process_time()
        try:
            read = contents(damaged)
        except TraceFormatError:
            seen["refused"] += 1
        else:
            seen["read"] += 1
            if change != "right checksum":
                assert read in (right, right[: len(read)])
            assert [row[:2] for row in read] == [row[:2] for row in right][: len(read)]
        slowest_s = max(slowest_s, time.process_time() - started)
        rmtree(damaged)
    assert seen["refused"] > num_mutations / 3
    assert slowest_s < SECONDS
    assert 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < MEMORY_BYTES


@pytest.mark.parametrize("target", ["/dev/zero", "/dev/full", "pipe", "folder"])
def test_metadata_that_is_no_file_is_refused_at_once(tmp_path: Path, target: str) -> None:
    path = tmp_path / "metadata.json"
    if target == "pipe":
        os.mkfifo(path)
    elif target == "folder":
        path.mkdir()
    else:
        path.symlink_to(target)
    with pytest.raises(TraceFormatError, match="regular file"):
        TraceReader(tmp_path)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
def test_a_full_disk_leaves_what_was_published(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The third part's file is one that takes no byte, as on a disk without room."""
    folder = tmp_path / "run"
    opened = writer_module._parquet

    def full_in_the_end(path: Path, schema: Any) -> Any:
        if "cycles-000002" in path.name:
            path.symlink_to("/dev/full")
        return opened(path, schema)

    monkeypatch.setattr(writer_module, "_parquet", full_in_the_end)
    with pytest.raises(TraceWriteError, match="published so far remain readable"):
        write_run(folder)
    trace = TraceReader(folder)
    assert [prompt.index for prompt in trace.prompts()] == [0, 1]
    assert any("not finished" in text for text in trace.missing)
