"""Damaged traces, half of them with right checksums: a named error or a correct read."""

from __future__ import annotations

import resource
from collections import Counter
from pathlib import Path
from shutil import copytree, rmtree

import numpy as np
import pytest

from specfit.core.errors import TraceFormatError
from specfit.sim.trace import TraceReader
from specfit.sim.trace.parts import checksum_of
from tests.unit.sim.traces import write_positions, write_run

MEMORY_BYTES = 2**29
"""How much the process may grow over all mutations."""


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


MUTATIONS = [flip_bits, damage_footer, truncate, zero, repeat]


def mutate(folder: Path, rng: np.random.Generator) -> str:
    """Damage one file, or exchange two; half of the time make the checksums right again."""
    paths = sorted(folder.iterdir())
    path = paths[int(rng.integers(len(paths)))]
    kind = int(rng.integers(len(MUTATIONS) + 1))
    if kind == len(MUTATIONS):
        other = paths[int(rng.integers(len(paths)))]
        ours, theirs = path.read_bytes(), other.read_bytes()
        path.write_bytes(theirs), other.write_bytes(ours)
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
    [("run", 100), pytest.param("positions", 1000, marks=pytest.mark.slow)],
)
def test_a_mutated_trace_is_refused_or_read_right(
    tmp_path: Path, kind: str, num_mutations: int
) -> None:
    rng = np.random.default_rng(11)
    whole = tmp_path / "whole"
    write_run(whole) if kind == "run" else write_positions(whole)
    right = contents(whole)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    seen: Counter[str] = Counter()
    for _ in range(num_mutations):
        damaged = tmp_path / "damaged"
        copytree(whole, damaged)
        checksums = mutate(damaged, rng)
        try:
            read = contents(damaged)
        except TraceFormatError:
            seen["refused"] += 1
        else:
            seen["read"] += 1
            if checksums == "wrong checksum":
                assert read == right
            assert [row[:2] for row in read] == [row[:2] for row in right]
        rmtree(damaged)
    assert seen["refused"] > num_mutations / 2
    assert 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < MEMORY_BYTES
