"""The price study's table for `docs/explanation/exact-search.md`."""

from __future__ import annotations

from typing import Any

from benchmarks.markdown import table
from benchmarks.price_study import StudyRow, mean_speedup


def block(report: dict[str, Any]) -> str:
    """Return the geometric means over caches, how far single caches are off, and if by chance."""
    rows = [StudyRow(**row) for row in report["rows"]]
    discounts = list(dict.fromkeys(row.discount for row in rows))
    means = [
        [price, *(f"{mean_speedup(rows, price, discount):.3f}" for discount in discounts)]
        for price in dict.fromkeys(row.price for row in rows)
    ]
    least, most = min(rows, key=_speedup), max(rows, key=_speedup)
    width = 100 * max(max(row.high - row.speedup, row.speedup - row.low) for row in rows)
    compared = [row for row in rows if row.low < row.high]
    apart = [row for row in compared if row.low > 1.0 or row.high < 1.0]
    return "\n\n".join(
        [
            table(["price", *(f"discount {discount:g}" for discount in discounts)], means),
            f"*Simulated*, {report['manifest']['prompts']} texts. Of single caches the least is "
            f"{_described(least)},\nthe most {_described(most)}. The 95 % intervals over texts "
            f"reach up to {width:.1f} points to a side;\n"
            f"{len(apart)} of {len(compared)} leave 1 out, where chance alone makes 5 % do so.",
        ]
    )


def _speedup(row: StudyRow) -> float:
    return row.speedup


def _described(row: StudyRow) -> str:
    return f"{row.speedup:.3f} (`{row.cache}`, {row.price}, discount {row.discount:g})"
