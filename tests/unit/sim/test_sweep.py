"""Sweeps: every combination once, the same table for any number of workers, resumable."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from specfit.core.cache import make_cache
from specfit.core.errors import InvalidInputError
from specfit.core.policy import policies
from specfit.sim.row import row_of
from specfit.sim.sweep import Cell, Row, product, run_sweep, with_sizes
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
    geometry = example_geometry()
    return row_of(results, make_cache(cell.cache, geometry), geometry)


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
    there: list[int] = []
    again = partial(evaluate, log=log)
    rows = run_sweep(cells, again, folder, context={}, on_start=there.append, on_cell=seen.append)
    assert sorted(log.read_text().split("\n")[:-1]) == sorted(
        f"{c.policy} {c.cache}" for c in cells
    )
    assert there == [2] and len(seen) == 2 and len(rows) == len(cells)
    assert rows == run_sweep(cells, evaluate, tmp_path / "whole", context={})


def test_a_moved_trace_is_the_same_trace(cells: list[Cell], tmp_path: Path) -> None:
    log, folder = tmp_path / "log", tmp_path / "sweep"
    there = run_sweep(cells[:1], partial(evaluate, log=log), folder, context={})
    moved = [replace(cells[0], trace="elsewhere")]
    rows = run_sweep(moved, partial(evaluate, log=log), folder, context={})
    assert rows == [{**there[0], "trace": "elsewhere"}]
    assert len(log.read_text().splitlines()) == 1


def test_an_edited_policy_is_another_policy(tmp_path: Path) -> None:
    file = tmp_path / "my.py"
    file.write_text("a = 1")
    (before,) = product({"t": "f"}, [f"{file}:Mine:depth=3"], ["none"])
    assert before == product({"t": "f"}, [f"{file}:Mine:depth=3"], ["none"])[0]
    file.write_text("a = 2")
    (after,) = product({"t": "f"}, [f"{file}:Mine:depth=3"], ["none"])
    assert before.key({}) != after.key({})


@pytest.mark.parametrize(
    ("rules", "sizes", "specs"),
    [
        (["lru:25%", "none"], [], ["lru:25%", "none"]),
        (["lru", "none"], ["16", "8GiB"], ["lru:16", "lru:8GiB", "none"]),
        (["lfu:decay=0.9"], ["25%"], ["lfu:25%,decay=0.9"]),
    ],
)
def test_each_rule_comes_with_each_size(
    rules: list[str], sizes: list[str], specs: list[str]
) -> None:
    assert with_sizes(rules, sizes) == specs


def test_a_rule_that_has_a_size_gets_no_other() -> None:
    with pytest.raises(InvalidInputError, match="lru:25%"):
        with_sizes(["lru:25%"], ["50%"])


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


def test_equal_cells_are_refused(cells: list[Cell], tmp_path: Path) -> None:
    for wrong in ([], [cells[0], cells[0]]):
        with pytest.raises(InvalidInputError, match="all different"):
            run_sweep(wrong, evaluate, tmp_path / "s", context={})
