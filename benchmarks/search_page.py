"""The search benchmark's rows for `docs/explanation/exact-search.md`, each of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from benchmarks.markdown import table

SHARE = re.compile(r", (\d+)% resident")
"""What tells the rows of one measure apart: the share of resident experts."""


def block(lines: Sequence[dict[str, Any]]) -> str:
    """Return the tables, given the manifest and the rows."""
    said, *rows = lines
    by_share = [row for row in rows if SHARE.search(row["what"])]
    others = [row for row in rows if not SHARE.search(row["what"])]
    parts = [
        f"`benchmarks/results/search.jsonl`: commit {said['commit']}, {said['date']}, "
        f"{said['machine']}, Python {said['python']},\nNumba {said['numba']}, load average "
        f"{said['load']:.0f}. In brackets the bar and whether it is met.",
        _by_share(by_share),
        table(
            ["measure", "found", "note"],
            [[f"{row['what']} [{row['unit']}]", _cell(row), row["note"]] for row in others],
        ),
        _growth({row["what"]: row["value"] for row in rows}),
    ]
    return "\n\n".join(parts)


def _by_share(rows: Sequence[dict[str, Any]]) -> str:
    shares = sorted({_share(row) for row in rows})
    cells: dict[str, dict[int, str]] = {}
    for row in rows:
        measure = f"{SHARE.sub('', row['what'])} [{row['unit']}]"
        cells.setdefault(measure, {})[_share(row)] = _cell(row)
    return table(
        ["measure, by resident experts", *(f"{share} %" for share in shares)],
        [[measure, *(found.get(s, "") for s in shares)] for measure, found in cells.items()],
    )


def _share(row: dict[str, Any]) -> int:
    found = SHARE.search(row["what"])
    assert found is not None, row["what"]
    return int(found[1])


def _cell(row: dict[str, Any]) -> str:
    value = _three_digits(row["value"])
    if row["limit"] is None:
        return value
    verdict = "met" if row["is_met"] else "**missed**"
    sign = "&ge;" if row["at_least"] else "&le;"
    return f"{value} ({sign} {_three_digits(row['limit'])}, {verdict})"


def _three_digits(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _growth(values: dict[str, float]) -> str:
    few, many = (
        values[f"affine, {nodes} nodes, 90% resident: median"] * 1e3 for nodes in (61, 610)
    )
    a_node = (many - few) / 549
    return (
        f"At 90 % resident 549 more nodes take {many - few:.0f} µs more than {few:.0f}: "
        f"{a_node:.2f} µs a node."
    )
