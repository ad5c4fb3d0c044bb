"""Where the time of a committed token goes: the parts of the cycle, stacked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from typing import TypeVar

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from specfit.core.decode import Timings
from specfit.report import panels, style
from specfit.report.naming import Look, link_name
from specfit.sim.metrics import Metrics
from specfit.sim.results import Place, Result, Results

T = TypeVar("T")

PARTS = tuple(field.name.removesuffix("_s") for field in fields(Timings))
"""Parts of the cycle's time: draft, select, stall, compute, commit."""
PART_COLORS = {
    "draft": "#e69f00",
    "select": "#cc79a7",
    "stall": "#d55e00",
    "compute": "#56b4e9",
    "commit": style.DIM,
}
MAX_COLUMNS, MAX_ROWS = 5, 4
BAR_IN = 0.235
PANEL_WIDTH_IN = 2.15
LABEL_CHARACTER_IN = 0.068


def part_s(metrics: Metrics, part: str) -> float:
    """Return the seconds of one part of the cycle."""
    return float(getattr(metrics, f"{part}_s"))


def draw_time(results: Results, looks: dict[str, Look], words: panels.Words) -> Figure:
    """Draw the time a committed token of one trace, a panel for each cache and link.

    Of more than 5 caches or 4 links, evenly spaced ones are shown.
    """
    caches, links = spread(results.caches, MAX_COLUMNS), spread(results.links, MAX_ROWS)
    shape = panels.Shape(
        len(links),
        len(caches),
        (PANEL_WIDTH_IN, BAR_IN * len(looks)),
        left_in=0.12,
        right_in=0.12,
        above_in=0.3,
        below_in=0.42,
    )
    key = [(part, _patch(part)) for part in PARTS if _is_used(results, part)]
    room = LABEL_CHARACTER_IN * max(len(look.label) for look in looks.values()) + 0.1
    figure, grid = panels.panel_figure(shape, words, key, first_left_in=room)
    (trace,) = results.traces
    for row, link in enumerate(links):
        places = [Place(trace, link, cache) for cache in caches]
        longest_ms = max((_ms(r) for place in places for r in results.at(place)), default=1.0)
        for column, place in enumerate(places):
            axes = grid[row][column]
            _draw_bars(axes, results, place, list(looks))
            panels.dress(axes, title=f"{link_name(link)} · {place.cache}", grid="x")
            axes.set(xlim=(0, longest_ms * 1.34), ylim=(len(looks) - 0.5, -0.5))
            names = [look.label for look in looks.values()] if column == 0 else []
            axes.set_yticks(range(len(names)), names)
            axes.tick_params(axis="y", length=0, labelcolor=style.INK, labelsize=8.5)
            panels.label(axes, x="ms a token, simulated" if row == len(links) - 1 else "")
    return figure


def spread(items: Sequence[T], most: int) -> list[T]:
    """Return at most so many of the items, evenly spaced, the first and last among them."""
    if len(items) <= most:
        return list(items)
    return [items[round(i * (len(items) - 1) / (most - 1))] for i in range(most)]


def _draw_bars(axes: Axes, results: Results, place: Place, policies: Sequence[str]) -> None:
    for row, policy in enumerate(policies):
        found = results.find(place, policy)
        if found is None:
            continue
        left = 0.0
        for part in PARTS:
            width = 1e3 * part_s(found.metrics, part) / found.metrics.num_committed
            axes.barh(row, width, left=left, height=0.66, color=PART_COLORS[part])
            left += width
        text = f" {left:.3g} ms"
        axes.text(left, row, text, size=7.5, va="center", color=style.INK)


def _ms(result: Result) -> float:
    return 1e3 * result.metrics.decode_s / result.metrics.num_committed


def _is_used(results: Results, part: str) -> bool:
    return any(part_s(result.metrics, part) > 0 for result in results)


def _patch(part: str) -> Patch:
    return Patch(facecolor=PART_COLORS[part])
