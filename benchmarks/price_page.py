"""The price study's table for `docs/explanation/exact-search.md`."""

from __future__ import annotations

from typing import Any

from benchmarks.markdown import table
from benchmarks.price_study import DISCOUNTS, StudyRow, mean_speedup


def block(report: dict[str, Any]) -> str:
    """Return the geometric means over caches, and how far single caches are off."""
    rows = [StudyRow(**row) for row in report["rows"]]
    means = [
        [price, *(f"{mean_speedup(rows, price, discount):.3f}" for discount in DISCOUNTS)]
        for price in dict.fromkeys(row.price for row in rows)
    ]
    least, most = min(rows, key=_speedup), max(rows, key=_speedup)
    width = 100 * max(max(row.high - row.speedup, row.speedup - row.low) for row in rows)
    return "\n\n".join(
        [
            table(["price", *(f"discount {discount:g}" for discount in DISCOUNTS)], means),
            f"*Simulated*, {report['manifest']['prompts']} texts. Of single caches the least is "
            f"{_described(least)},\nthe most {_described(most)}. The 95 % intervals over texts "
            f"reach up to {width:.1f} points to a side.",
        ]
    )


def _speedup(row: StudyRow) -> float:
    return row.speedup


def _described(row: StudyRow) -> str:
    return f"{row.speedup:.3f} (`{row.cache}`, {row.price}, discount {row.discount:g})"
