"""Reads the table of a sweep back: counters again, so that every ratio has the one ruler."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError
from specfit.sim.metrics import (
    Calibration,
    DepthCount,
    Interval,
    Metrics,
    UnionCount,
    paired_ratio,
)
from specfit.sim.sweep import RESULTS_NAME

Row = dict[str, Any]
NEEDED = ("trace", "policy", "cache", "link_bytes_per_s", "policy_key", "seconds", "prompt_s")
"""Columns without which a table is no sweep's."""


@dataclass(frozen=True)
class Place:
    """Where policies are compared: one trace, one link, one cache."""

    trace: str
    link_bytes_per_s: float
    cache: str


@dataclass(frozen=True, eq=False)
class Result:
    """What one policy did at one place, over all seeds.

    Parameters
    ----------
    place : Place
        Trace, link and cache.
    policy : str
        Spec.
    rows : tuple of dict
        Rows of the table, one for each seed.
    """

    place: Place
    policy: str
    rows: tuple[Row, ...]

    @cached_property
    def metrics(self) -> Metrics:
        """Counters of all rows together; ratios are its properties."""
        counters = {
            field.name: sum(row[field.name] for row in self.rows)
            for field in fields(Metrics)
            if field.name != "calibration"
        }
        return Metrics(**counters, calibration=self._calibration())

    @property
    def is_reference(self) -> bool:
        """Whether the policy looks ahead of the target, so that it cannot decode."""
        return bool(self.rows[0]["policy_is_reference"])

    @property
    def slots(self) -> int:
        """Slots a layer of the expert cache; 0 for none."""
        return int(self.rows[0]["cache_slots"])

    @property
    def cache_share(self) -> float:
        """Share of a layer's experts that the cache holds."""
        return self.slots / self.num_experts

    @property
    def num_experts(self) -> int:
        """Experts a layer."""
        return int(self.rows[0]["num_experts"])

    @property
    def num_layers(self) -> int:
        """MoE layers."""
        return int(self.rows[0]["num_layers"])

    @property
    def experts_per_token(self) -> int:
        """Routed experts a token and layer."""
        return int(self.rows[0]["experts_per_token"])

    @property
    def belady_misses(self) -> int | None:
        """Least misses that any rule of this cache's size could have had for the same passes."""
        return self._sum("belady_misses")

    @property
    def ordered_misses(self) -> int | None:
        """Misses for the passes as they came, without prefetching."""
        return self._sum("ordered_misses")

    @property
    def shuffled_misses(self) -> int | None:
        """Misses for the passes of each text in a drawn order."""
        return self._sum("shuffled_misses")

    @property
    def dealt_misses(self) -> int | None:
        """Misses for the passes of all texts dealt to them at random."""
        return self._sum("dealt_misses")

    @cached_property
    def depths(self) -> tuple[DepthCount, ...]:
        """Verified and accepted nodes at each depth, from 1 on."""
        return depth_counts(self.rows)

    @cached_property
    def unions(self) -> tuple[UnionCount, ...]:
        """Experts activated by passes of each number of nodes."""
        return union_counts(self.rows)

    @cached_property
    def tokens_and_seconds(self) -> NDArray[np.float64]:
        """Tokens and seconds of each prompt and seed, float64[n, 2]."""
        tokens = [value for row in self.rows for value in row["prompt_tokens"]]
        seconds = [value for row in self.rows for value in row["prompt_s"]]
        return np.array([tokens, seconds], np.float64).T

    def speedup_over(self, baseline: Result) -> Interval:
        """Return tokens a second against those of `baseline` on the same prompts and seeds."""
        return paired_ratio(self.tokens_and_seconds, baseline.tokens_and_seconds)

    def _sum(self, name: str) -> int | None:
        values = [row[name] for row in self.rows]
        return None if None in values else int(sum(values))

    def _calibration(self) -> Calibration:
        names = ("predicted_committed", "realised_committed", "predicted_misses", "realised_misses")
        sums = {name: float(sum(row[name] for row in self.rows)) for name in names}
        return Calibration(**sums, cycle_errors=np.zeros(0))


@dataclass(frozen=True, eq=False)
class Results:
    """The table of a sweep.

    Parameters
    ----------
    results : tuple of Result
        In the order of the table.
    """

    results: tuple[Result, ...]

    def __iter__(self) -> Iterator[Result]:
        return iter(self.results)

    @property
    def rows(self) -> tuple[Row, ...]:
        """All rows of the table."""
        return tuple(row for result in self.results for row in result.rows)

    @property
    def seconds(self) -> str:
        """Where the seconds come from: ``"simulated"``."""
        return str(self.rows[0]["seconds"])

    @cached_property
    def traces(self) -> tuple[str, ...]:
        """Folders of the traces, as they were given."""
        return tuple(dict.fromkeys(result.place.trace for result in self.results))

    @cached_property
    def policies(self) -> tuple[str, ...]:
        """Specs of the policies in the order of the table."""
        return tuple(dict.fromkeys(result.policy for result in self.results))

    @cached_property
    def links(self) -> tuple[float, ...]:
        """Bandwidths in bytes a second, slowest first."""
        return tuple(sorted({result.place.link_bytes_per_s for result in self.results}))

    @cached_property
    def caches(self) -> tuple[str, ...]:
        """Specs of the caches, smallest first."""
        size = {result.place.cache: result.slots for result in self.results}
        return tuple(sorted(size, key=lambda cache: size[cache]))

    @cached_property
    def places(self) -> tuple[Place, ...]:
        """Where policies are compared."""
        return tuple(dict.fromkeys(result.place for result in self.results))

    def at(self, place: Place) -> tuple[Result, ...]:
        """Return what every policy did at a place."""
        return self._by_place.get(place, ())

    def of_trace(self, trace: str) -> Results:
        """Return the part of the table that is of one trace."""
        return Results(tuple(r for r in self.results if r.place.trace == trace))

    def find(self, place: Place, policy: str) -> Result | None:
        """Return what a policy did at a place, if it was tried there."""
        return next((r for r in self.at(place) if r.policy == policy), None)

    def baseline(self, place: Place, name: str) -> Result | None:
        """Return the first policy of this name at a place, whatever its parameters."""
        return next((r for r in self.at(place) if r.policy.partition(":")[0] == name), None)

    def best(self, place: Place) -> Result:
        """Return the fastest policy at a place; references, which cannot decode, only if alone."""
        here = self.at(place)
        able = [result for result in here if not result.is_reference] or list(here)
        return max(able, key=lambda result: result.metrics.tokens_per_s)

    @cached_property
    def _by_place(self) -> dict[Place, tuple[Result, ...]]:
        return {p: tuple(r for r in self.results if r.place == p) for p in self.places}


def read_results(path: Path) -> Results:
    """Return the results of a sweep.

    Parameters
    ----------
    path : Path
        Its folder, or the Parquet file in it.

    Raises
    ------
    InvalidInputError
        There is no such table, it is damaged, or it is not a sweep's.
    """
    file = path / RESULTS_NAME if path.is_dir() else path
    if not file.is_file():
        raise InvalidInputError(
            f"{path} must be the folder of a finished sweep, with a {RESULTS_NAME}. Run "
            f"`specfit sweep TRACE --out {path}`; one that was stopped goes on from there."
        )
    try:
        rows: list[Row] = pq.read_table(file).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise InvalidInputError(f"{file} cannot be read: {error}. Run the sweep again.") from error
    counters = [field.name for field in fields(Metrics) if field.name != "calibration"]
    missing = [name for name in (*NEEDED, *counters) if not rows or name not in rows[0]]
    if missing:
        raise InvalidInputError(
            f"{file} must be the table of `specfit sweep`; it lacks {', '.join(missing)}. Run the "
            f"sweep again with this version."
        )
    return results_of(rows)


def results_of(rows: Sequence[Row]) -> Results:
    """Return the results of a table's rows; those that differ in the seed alone are put together.

    Raises
    ------
    InvalidInputError
        Some seconds are simulated and others are not.
    """
    kinds = sorted({row["seconds"] for row in rows})
    if len(kinds) != 1:
        raise InvalidInputError(
            f"seconds of one kind are compared; got {' and '.join(kinds)}. Report them apart."
        )
    found: dict[tuple[Place, str], list[Row]] = {}
    for row in rows:
        place = Place(row["trace"], row["link_bytes_per_s"], row["cache"])
        found.setdefault((place, row["policy"]), []).append(row)
    return Results(tuple(Result(place, p, tuple(of)) for (place, p), of in found.items()))


def depth_counts(rows: Iterable[Row]) -> tuple[DepthCount, ...]:
    """Return the verified and accepted nodes at each depth over some rows, from depth 1 on."""
    sums: dict[int, list[int]] = {}
    for row in rows:
        pairs = zip(row["verified_by_depth"], row["accepted_by_depth"], strict=True)
        for depth, (verified, accepted) in enumerate(pairs, 1):
            total = sums.setdefault(depth, [0, 0])
            total[0] += verified
            total[1] += accepted
    return tuple(DepthCount(depth, *sums[depth]) for depth in sorted(sums))


def union_counts(rows: Iterable[Row]) -> tuple[UnionCount, ...]:
    """Return the experts activated by passes of each number of nodes over some rows."""
    sums: dict[int, list[int]] = {}
    for row in rows:
        counts = zip(row["union_nodes"], row["union_passes"], row["union_experts"], strict=True)
        for num_nodes, num_passes, num_experts in counts:
            total = sums.setdefault(num_nodes, [0, 0])
            total[0] += num_passes
            total[1] += num_experts
    return tuple(UnionCount(nodes, *sums[nodes]) for nodes in sorted(sums))
