"""The rows of every result table: which figures are shown, in what order, in what unit."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from specfit.sim.metrics import Metrics, figure_or_none

DASH = "–"  # noqa: RUF001 - a dash is meant
"""Where there is no figure."""


@dataclass(frozen=True)
class Measure:
    """One figure of a result.

    Parameters
    ----------
    key : str
        Its name in JSON.
    label : str
        Its name in tables.
    digits : int
        Digits after the point.
    of : callable
        The figure of some metrics; NaN where it has none.
    """

    key: str
    label: str
    digits: int
    of: Callable[[Metrics], float]

    def text(self, metrics: Metrics) -> str:
        """Return the figure as a table cell."""
        return number_text(self.of(metrics), self.digits)


COUNTS: tuple[Measure, ...] = (
    Measure("committed_per_cycle", "committed tokens a cycle", 2, lambda m: m.committed_per_cycle),
    Measure("verified_per_cycle", "verified nodes a cycle", 2, lambda m: m.verified_per_cycle),
    Measure("levels_per_cycle", "drafted levels a cycle", 2, lambda m: m.levels_per_cycle),
    Measure("copied_per_token", "experts copied a token", 1, lambda m: m.copied_per_token),
    Measure("hit_rate", "expert hit rate", 3, lambda m: m.hit_rate),
)
PREDICTIONS: tuple[Measure, ...] = (
    Measure(
        "predicted_over_realised_committed",
        "committed, predicted ÷ real",
        3,
        lambda m: m.calibration.committed_ratio,
    ),
    Measure(
        "predicted_over_realised_misses",
        "copied, predicted ÷ real",
        3,
        lambda m: m.calibration.misses_ratio,
    ),
)
CYCLE_ERRORS: tuple[Measure, ...] = (
    Measure(
        "cycle_error_median",
        "cycle time error, median",
        3,
        lambda m: m.calibration.cycle_error_median,
    ),
    Measure(
        "cycle_error_p95",
        "cycle time error, 95th percentile",
        3,
        lambda m: m.calibration.cycle_error_p95,
    ),
)


def number_text(value: float, digits: int) -> str:
    """Return a number with so many digits after the point; `DASH` for NaN."""
    return DASH if math.isnan(value) else f"{value:,.{digits}f}"


def json_values(measures: Sequence[Measure], metrics: Metrics) -> dict[str, float | None]:
    """Return the figures by key; None where there is none."""
    return {m.key: figure_or_none(m.of(metrics)) for m in measures}


def error_text(median: float, p95: float) -> str:
    """Return the median and the 95th percentile of relative errors as a table cell."""
    return DASH if math.isnan(median) else f"{median * 100:.0f} / {p95 * 100:.0f} %"
