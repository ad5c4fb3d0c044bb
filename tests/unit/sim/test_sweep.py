"""Sweeps: every combination once, the same table for any number of workers, resumable."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from specfit.core.errors import InvalidInputError
from specfit.core.policy import policies
from specfit.sim.metrics import paired_speedup
from specfit.sim.sweep import Cell, Row, product, row_of, run_sweep, speedup_of
from specfit.testing.examples import example_geometry
from tests.unit.sim.traces import replayed

POLICIES = ("autoregressive", "eagle3:depth=4,top_k=3,max_nodes=12")
CACHES = ("lru:25%", "none")


def evaluate(cell: Cell, log: Path | None = None, fails_on: str = "") -> Row:
    """Replay a cell, note that it ran, and fail where a test wants a killed sweep."""
    if cell.cache == fails_on:
        raise KeyboardInterrupt
    if log is not None:
        with log.open("a", encoding="utf-8") as file:
            file.write(f"{cell.policy} {cell.cache}\n")
    results = replayed(Path(cell.trace), policies.make(cell.policy), cell.cache)
    return row_of(results, example_geometry().expert_bytes)


@pytest.fixture(scope="module")
def cells(positions_trace: Path) -> list[Cell]:
    return product({str(positions_trace): "fingerprint"}, POLICIES, CACHES)


def test_the_product_holds_every_combination() -> None:
    made = product({"a": "x", "b": "y"}, ["p", "q"], ["c"], [None, 1e9], [0, 1])
    assert len(set(made)) == len(made) == 16
    assert made[0] == Cell("a", "x", "p", "c", None, 0)
    assert made[-1] == Cell("b", "y", "q", "c", 1e9, 1)


def test_a_sweep_is_the_same_for_any_number_of_workers(cells: list[Cell], tmp_path: Path) -> None:
    one = run_sweep(cells, evaluate, tmp_path / "one", context={"v": 1})
    two = run_sweep(cells, evaluate, tmp_path / "two", context={"v": 1}, num_workers=2)
    assert one == two
    assert [(row["policy"], row["cache"]) for row in one] == [(c.policy, c.cache) for c in cells]
    tables = [pq.read_table(tmp_path / n / "results.parquet") for n in ("one", "two")]
    assert tables[0].equals(tables[1])
    assert tables[0].to_pylist() == one


def test_a_killed_sweep_goes_on_where_it_stopped(cells: list[Cell], tmp_path: Path) -> None:
    log, folder = tmp_path / "log", tmp_path / "sweep"
    with pytest.raises(KeyboardInterrupt):
        run_sweep(cells, partial(evaluate, log=log, fails_on="none"), folder, context={})
    assert not (folder / "results.parquet").exists()
    seen: list[Cell] = []
    rows = run_sweep(cells, partial(evaluate, log=log), folder, context={}, on_cell=seen.append)
    assert sorted(log.read_text().split("\n")[:-1]) == sorted(
        f"{c.policy} {c.cache}" for c in cells
    )
    assert len(seen) == len(rows) == len(cells)
    assert rows == run_sweep(cells, evaluate, tmp_path / "whole", context={})


def test_another_context_is_another_result(cells: list[Cell], tmp_path: Path) -> None:
    log = tmp_path / "log"
    for version in (1, 2, 2):
        run_sweep(cells[:1], partial(evaluate, log=log), tmp_path / "s", context={"v": version})
    assert len(log.read_text().splitlines()) == 2


def test_a_torn_cell_is_run_again(cells: list[Cell], tmp_path: Path) -> None:
    rows = run_sweep(cells[:1], evaluate, tmp_path / "s", context={})
    (path,) = (tmp_path / "s" / "cells").iterdir()
    path.write_text(path.read_text()[:40])
    assert run_sweep(cells[:1], evaluate, tmp_path / "s", context={}) == rows


def test_a_speedup_is_paired_with_the_baseline_of_its_cell(
    cells: list[Cell], tmp_path: Path, positions_trace: Path
) -> None:
    rows = run_sweep(cells, evaluate, tmp_path / "s", context={})
    for cell, row in zip(cells, rows, strict=True):
        ours, theirs = (
            replayed(positions_trace, policies.make(name), cell.cache)
            for name in (cell.policy, "autoregressive")
        )
        assert speedup_of(row, rows) == paired_speedup(ours, theirs)
    assert speedup_of(rows[0], rows[1:]) is None


def test_equal_cells_are_refused(cells: list[Cell], tmp_path: Path) -> None:
    for wrong in ([], [cells[0], cells[0]]):
        with pytest.raises(InvalidInputError, match="all different"):
            run_sweep(wrong, evaluate, tmp_path / "s", context={})
