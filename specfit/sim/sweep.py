"""Sweeps: many cells, one after the other or at once, resumable, with one row each.

A cell is one policy with one cache on one link and one trace. A finished cell is a file, so that a
sweep that was killed goes on where it stopped, and the table is the same whatever the number of
workers. What a cell does is a function that the caller gives; nothing here knows a policy.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from specfit.core.decode import DecodeResult
from specfit.core.errors import InvalidInputError, TraceWriteError
from specfit.sim.metrics import Interval, measure, paired_ratio

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
    """

    trace: str
    trace_fingerprint: str
    policy: str
    cache: str
    h2d_bandwidth_bytes_per_s: float | None = None
    policy_key: int = 0

    def key(self, context: Mapping[str, Any]) -> str:
        """Return the name under which the cell's row is kept: a digest of all that decides it."""
        text = json.dumps([asdict(self), dict(context)], sort_keys=True, default=str)
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
    return [Cell(*trace, p, c, b, k) for trace, b, c, k, p in combinations]


def row_of(results: Sequence[DecodeResult], expert_bytes: int) -> Row:
    """Return the counters of a replayed cell, and each prompt's tokens and simulated seconds."""
    metrics = measure(results, expert_bytes)
    counters = {k: v for k, v in vars(metrics).items() if isinstance(v, int | float)}
    return {
        **counters,
        "simulated_tokens_per_s": metrics.tokens_per_s,
        "prompt_tokens": [result.num_decoded for result in results],
        "prompt_s": [result.decode_s for result in results],
    }


def run_sweep(
    cells: Sequence[Cell],
    evaluate: Callable[[Cell], Row],
    folder: Path,
    *,
    context: Mapping[str, Any],
    num_workers: int = 1,
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
        Processes; the active joblib backend decides where they are.
    on_cell : callable, optional
        Called with each cell as it finishes, those that were there included.

    Raises
    ------
    InvalidInputError
        There is no cell, or two are the same.
    TraceWriteError
        The folder cannot be written.
    """
    keys = [cell.key(context) for cell in cells]
    if not cells or len(set(keys)) != len(keys):
        raise InvalidInputError(
            f"a sweep has one or more cells, all different; got {len(cells)}, "
            f"{len(set(keys))} of them different. Name each policy, cache and link once."
        )
    try:
        (folder / CELLS_FOLDER).mkdir(parents=True, exist_ok=True)
        _evaluate_missing(cells, keys, evaluate, folder, context, num_workers, on_cell)
        rows = [_read_cell(folder, key) for key in keys]
        assert all(row is not None for row in rows), "every cell has been evaluated"
        table = pa.Table.from_pylist([row for row in rows if row is not None])
        _replace(folder / RESULTS_NAME, lambda path: pq.write_table(table, path))
    except OSError as error:
        raise TraceWriteError(f"cannot write the sweep {folder}: {error}.") from error
    return [row for row in rows if row is not None]


def speedup_of(row: Row, rows: Iterable[Row], baseline: str = "autoregressive") -> Interval | None:
    """Return a row's speed-up over `baseline` on the same trace, cache, link and key.

    Returns
    -------
    Interval or None
        None where the sweep holds no such row.
    """
    same = ("trace", "cache", "h2d_bandwidth_bytes_per_s", "policy_key")
    for other in rows:
        if other["policy"] == baseline and all(other[name] == row[name] for name in same):
            return paired_ratio(_per_prompt(row), _per_prompt(other))
    return None


def _evaluate_missing(
    cells: Sequence[Cell],
    keys: Sequence[str],
    evaluate: Callable[[Cell], Row],
    folder: Path,
    context: Mapping[str, Any],
    num_workers: int,
    on_cell: Callable[[Cell], None] | None,
) -> None:
    is_done = [_read_cell(folder, key) is not None for key in keys]
    pairs = list(zip(cells, keys, is_done, strict=True))
    for cell, _, done in pairs:
        if done and on_cell is not None:
            on_cell(cell)
    jobs = (
        joblib.delayed(_evaluate)(cell, key, evaluate, folder, dict(context))
        for cell, key, done in pairs
        if not done
    )
    finished = joblib.Parallel(n_jobs=num_workers, return_as="generator_unordered")(jobs)
    for cell in finished:
        if on_cell is not None:
            on_cell(cell)


def _evaluate(
    cell: Cell,
    key: str,
    evaluate: Callable[[Cell], Row],
    folder: Path,
    context: dict[str, Any],
) -> Cell:
    row = {**asdict(cell), **evaluate(cell), **context}
    text = json.dumps(row, allow_nan=True)
    _replace(_cell_path(folder, key), lambda path: path.write_text(text, "utf-8"))
    return cell


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
    write(temporary)
    temporary.replace(path)


def _per_prompt(row: Row) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([row["prompt_tokens"], row["prompt_s"]], np.float64).T
