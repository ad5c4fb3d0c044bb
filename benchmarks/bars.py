"""What the decoding benchmark must show, and which of it a run missed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Interval = tuple[float, float, float]
"""Estimate, low, high of a 95 % interval."""


@dataclass(frozen=True)
class Row:
    """One policy with one cache, over all prompts and runs.

    Parameters
    ----------
    speedup, against_tuned : (float, float, float)
        Tokens a second against plain decoding and against tuned EAGLE-3 with the same cache.
    ceiling_tokens_per_s : float
        Simulated: perfect drafting that takes no time.
    shares : dict
        Part of the decode seconds by kind.
    committed_ratio, misses_ratio : float, optional
        Predicted over realised, of the selections made on texts that do not loop.
    looping_prompts : int
        Prompts whose text loops, reported apart.
    """

    cache: str
    policy: str
    params: dict[str, Any]
    tokens_per_s: float
    speedup: Interval
    against_tuned: Interval
    ceiling_tokens_per_s: float
    committed_per_cycle: float
    verified_per_cycle: float
    levels_per_cycle: float
    copied_per_token: float
    hit_rate: float
    shares: dict[str, float]
    committed_ratio: float | None
    misses_ratio: float | None
    looping_prompts: int
    num_runs: int
    num_prompts: int


LOWEST_SPEEDUP = 0.97
"""`specfit` over plain decoding, at any cache size."""

LOWEST_AGAINST_BEST = {"lru:25%": 0.98, "lru:100%": 0.98}
"""`specfit` over the better of plain decoding and tuned EAGLE-3."""

MUST_WIN = ("lru:50%", "lru:75%")
"""Where the interval of `specfit` over the better of the two must lie above 1."""

LOWEST_STOCK_RATIO = 0.9
"""Plain decoding with everything resident over stock `transformers.generate`."""


def missed_bars(rows: Sequence[Row], stock_ratio: float) -> list[str]:
    """Return one line for every bar that the rows miss."""
    missed = []
    if stock_ratio < LOWEST_STOCK_RATIO:
        missed.append(
            f"plain decoding is {stock_ratio:.3f} of stock generate, not {LOWEST_STOCK_RATIO}"
        )
    ours = [row for row in rows if row.policy == "specfit"]
    for row in ours:
        missed += _missed(row)
    return missed


def _missed(row: Row) -> list[str]:
    missed = []
    if row.speedup[0] < LOWEST_SPEEDUP:
        missed.append(f"{row.cache}: specfit is {row.speedup[0]:.3f} of plain decoding")
    against_best = min(row.speedup, row.against_tuned)
    bar = LOWEST_AGAINST_BEST.get(row.cache)
    if bar is not None and against_best[0] < bar:
        missed.append(
            f"{row.cache}: specfit is {against_best[0]:.3f} of the better rival, not {bar}"
        )
    if row.cache in MUST_WIN and against_best[1] <= 1:
        missed.append(
            f"{row.cache}: the interval of specfit over the better rival "
            f"starts at {against_best[1]:.3f}"
        )
    if row.committed_ratio is not None and abs(row.committed_ratio - 1) > 0.05:
        missed.append(
            f"{row.cache}: predicted committed tokens are {row.committed_ratio:.3f} of the real"
        )
    if row.misses_ratio is not None and abs(row.misses_ratio - 1) > 0.15:
        missed.append(f"{row.cache}: predicted misses are {row.misses_ratio:.3f} of the real")
    return missed
