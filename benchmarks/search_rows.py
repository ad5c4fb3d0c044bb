"""Rows of the search benchmark: a value, perhaps a limit, and whether it is met."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numba

import specfit


@dataclass(frozen=True)
class Row:
    """One line of the table; `limit` is a bound from above unless `at_least`."""

    what: str
    value: float
    unit: str
    limit: float | None = None
    at_least: bool = False
    note: str = ""

    @property
    def is_met(self) -> bool:
        """Whether the value keeps to its limit; rows without one are context."""
        if self.limit is None:
            return True
        return self.value >= self.limit if self.at_least else self.value <= self.limit

    def __str__(self) -> str:
        sign = "" if self.limit is None else f"{'>=' if self.at_least else '<='} {self.limit:g}"
        verdict = "" if self.limit is None else ("met" if self.is_met else "MISSED")
        return (
            f"{self.what:<58} {self.value:>10.3f} {self.unit:<6} {sign:<9} {verdict:<7} {self.note}"
        )


def manifest() -> dict[str, object]:
    """Return what a result has to say of where it comes from."""
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {
        "specfit": specfit.__version__,
        "commit": commit,
        "date": time.strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "numba": numba.__version__,
    }


def write_rows(path: Path, rows: Sequence[Row]) -> None:
    """Write a manifest and the rows, one JSON object a line."""
    lines = [manifest(), *(asdict(row) | {"is_met": row.is_met} for row in rows)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
