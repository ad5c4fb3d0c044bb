"""Sweeps: many cells, one after the other or at once, resumable, with one row each.

A cell is one policy with one cache on one link and one trace. A finished cell is a file, so that a
sweep that was killed goes on where it stopped, and the table is the same whatever the number of
workers and wherever they are: they hand their rows back, and this process alone writes. What a cell
does is a function that the caller gives; nothing here knows a policy.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import joblib
import pyarrow as pa
import pyarrow.parquet as pq

from specfit.core.errors import InvalidInputError, TraceWriteError
from specfit.sim.engine import LOCAL, end_with, engine, run_jobs

CELLS_FOLDER = "cells"
RESULTS_NAME = "results.parquet"

Row = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """One combination of a sweep.

    Parameters
    ----------
    trace, trace_fingerprint : str
        Folder of the trace, and what is in it.
    policy, cache : str
        Specs.
    h2d_bandwidth_bytes_per_s : float, optional
        Bandwidth of the link, in place of the profile's.
    policy_key : int
        Key of the generator that policies may draw from.
    policy_file_sha256 : str, optional
        Of the file that a policy of one's own lies in.
    """

    trace: str
    trace_fingerprint: str
    policy: str
    cache: str
    h2d_bandwidth_bytes_per_s: float | None = None
    policy_key: int = 0
    policy_file_sha256: str | None = None

    def key(self, context: Mapping[str, Any]) -> str:
        """Return the name under which the cell's row is kept: a digest of all that decides it.

        Where the trace lies does not.
        """
        what = {name: value for name, value in asdict(self).items() if name != "trace"}
        text = json.dumps([what, dict(context)], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:32]


def product(
    traces: Mapping[str, str],
    policies: Sequence[str],
    caches: Sequence[str],
    bandwidths: Sequence[float | None] = (None,),
    policy_keys: Sequence[int] = (0,),
) -> list[Cell]:
    """Return every combination, policies innermost; `traces` are folders with fingerprints."""
    combinations = itertools.product(traces.items(), bandwidths, caches, policy_keys, policies)
    files = {policy: _file_sha256(policy) for policy in policies}
    return [Cell(*trace, p, c, b, k, files[p]) for trace, b, c, k, p in combinations]


def with_sizes(rules: Sequence[str], sizes: Sequence[str]) -> list[str]:
    """Return the cache specs of each rule with each size; ``none`` has no size and stays alone.

    Parameters
    ----------
    rules : sequence of str
        ``lru``, or with parameters ``lfu:decay=0.9``.
    sizes : sequence of str
        ``25%``, ``16`` or ``8GiB``; if there are none, the rules are whole specs already.

    Raises
    ------
    InvalidInputError
        A rule has a size already.
    """
    if not sizes:
        return list(rules)
    specs = []
    for rule in rules:
        name, _, params = rule.partition(":")
        if params and "=" not in params.partition(",")[0]:
            raise InvalidInputError(
                f"with --size a cache is a rule alone, like lru or lfu:decay=0.9; got '{rule}'. "
                f"Leave its size away, or give no --size."
            )
        rest = f",{params}" if params else ""
        specs += [rule] if name == "none" else [f"{name}:{size}{rest}" for size in sizes]
    return specs


def run_sweep(
    cells: Sequence[Cell],
    evaluate: Callable[[Cell], Row],
    folder: Path,
    *,
    context: Mapping[str, Any],
    num_workers: int = 1,
    where: str = LOCAL,
    on_start: Callable[[int], None] | None = None,
    on_cell: Callable[[Cell], None] | None = None,
) -> list[Row]:
    """Evaluate the cells that `folder` does not hold yet; write and return the table of all.

    Parameters
    ----------
    evaluate : callable
        Returns the row of a cell; it is pickled to the workers, so it is defined in a module.
    folder : Path
        Gets a file for each finished cell, and ``results.parquet``.
    context : mapping
        What else decides a row: versions, checksums, profiles. It is part of every row, and a cell
        that finished under another context is evaluated again.
    num_workers : int
        Processes of this machine; -1 is one a core. A cluster uses all that it has.
    where : str
        The `specfit.sim.engine.engine` that runs the cells.
    on_start : callable, optional
        Called once with the number of cells that are there already.
    on_cell : callable, optional
        Called with each cell as it finishes, those that were there not included.

    Raises
    ------
    InvalidInputError
        There is no cell, two are the same, or there is no such engine.
    TraceWriteError
        The folder cannot be written.
    """
    keys = [cell.key(context) for cell in cells]
    if not cells or len(set(keys)) != len(keys):
        raise InvalidInputError(
            f"a sweep has one or more cells, all different; got {len(cells)}, "
            f"{len(set(keys))} of them different. Name each policy, cache and link once."
        )
    rows = {key: row for key in keys if (row := _read_cell(folder, key)) is not None}
    if on_start is not None:
        on_start(len(rows))
    missing = [(cell, key) for cell, key in zip(cells, keys, strict=True) if key not in rows]
    parent = os.getpid() if where == LOCAL else None
    with engine(where if missing else LOCAL):
        jobs = (joblib.delayed(_evaluate)(cell, key, evaluate, parent) for cell, key in missing)
        for cell, key, found in run_jobs(jobs, num_workers):
            rows[key] = _write_cell(folder, key, {**asdict(cell), **found, **context})
            if on_cell is not None:
                on_cell(cell)
    ordered = [{**rows[key], "trace": cell.trace} for cell, key in zip(cells, keys, strict=True)]
    table = pa.Table.from_pylist(ordered)
    _replace(folder / RESULTS_NAME, lambda path: pq.write_table(table, path))
    return ordered


def _evaluate(
    cell: Cell, key: str, evaluate: Callable[[Cell], Row], parent: int | None
) -> tuple[Cell, str, Row]:
    """Evaluate a cell in a worker, which ends with the process `parent` on the same machine."""
    if parent is not None:
        end_with(parent)
    return cell, key, evaluate(cell)


def _file_sha256(policy: str) -> str | None:
    """Return the digest of the file of a policy ``file.py:Class``; None for a registered one."""
    path, found, _ = policy.partition(".py:")
    file = Path(f"{path}.py")
    if not found or not file.is_file():
        return None
    return hashlib.sha256(file.read_bytes()).hexdigest()


def _write_cell(folder: Path, key: str, row: Row) -> Row:
    """Write a finished cell's row and return it as it is read back."""
    text = json.dumps(row, allow_nan=False)
    _replace(_cell_path(folder, key), lambda path: path.write_text(text, "utf-8"))
    written: Row = json.loads(text)
    return written


def _read_cell(folder: Path, key: str) -> Row | None:
    """Return a finished cell's row; None where it is not there or not whole."""
    try:
        row: Row = json.loads(_cell_path(folder, key).read_text("utf-8"))
    except (FileNotFoundError, ValueError):
        return None
    return row


def _cell_path(folder: Path, key: str) -> Path:
    return folder / CELLS_FOLDER / f"{key}.json"


def _replace(path: Path, write: Callable[[Path], object]) -> None:
    """Write a file in one step."""
    temporary = path.with_name(f".open-{path.name}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write(temporary)
        temporary.replace(path)
    except OSError as error:
        raise TraceWriteError(f"cannot write the sweep's {path}: {error}.") from error
