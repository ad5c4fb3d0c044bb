"""Speed against the size of the cache, and against the bandwidth of the link."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import NullLocator, StrMethodFormatter

from specfit.report import panels
from specfit.report.naming import Look, link_name, rule_of
from specfit.sim.results import Result, Results

MAX_COLUMNS = 4
PANEL_IN = (2.55, 2.05)


@dataclass(frozen=True, eq=False)
class Panel:
    """One panel: the results in it, and what they have in common."""

    title: str
    results: Sequence[Result]


def draw_by_cache(results: Results, looks: dict[str, Look], words: panels.Words) -> Figure | None:
    """Draw speed against cache size, a panel for each link and rule; None for a single size.

    A cache of size 0 is `none`, and belongs to every rule.
    """
    if len({result.slots for result in results}) < 2:
        return None
    rules = [rule for rule in map(rule_of, results.caches) if rule != "none"]
    shown = [
        Panel(
            f"{link_name(link)} · {rule}" if len(set(rules)) > 1 else link_name(link),
            [
                r
                for r in results
                if r.place.link_bytes_per_s == link and rule_of(r.place.cache) in (rule, "none")
            ],
        )
        for rule in dict.fromkeys(rules)
        for link in results.links
    ]

    def prepare(axes: Axes) -> None:
        axes.set_xlim(left=-3 if any(r.slots == 0 for r in results) else 0)
        axes.xaxis.set_major_formatter(StrMethodFormatter("{x:.0f}%"))

    return _draw(
        shown,
        lambda result: 100 * result.cache_share,
        "experts resident",
        looks,
        words,
        prepare,
        len(results.links),
    )


def draw_by_link(results: Results, looks: dict[str, Look], words: panels.Words) -> Figure | None:
    """Draw speed against bandwidth, a panel for each cache; None for a single link."""
    if len(results.links) < 2:
        return None
    shown = [
        Panel(cache, [r for r in results if r.place.cache == cache]) for cache in results.caches
    ]

    def prepare(axes: Axes) -> None:
        axes.set_xscale("log")
        axes.xaxis.set_minor_locator(NullLocator())
        ticks = [link / 1e9 for link in results.links]
        axes.set_xticks(ticks, [f"{tick:.3g}" for tick in ticks])
        axes.set_xlim(ticks[0] / 1.15, ticks[-1] * 1.15)

    return _draw(
        shown,
        lambda result: result.place.link_bytes_per_s / 1e9,
        "GB/s, host to device",
        looks,
        words,
        prepare,
        MAX_COLUMNS,
    )


def key_of(looks: dict[str, Look]) -> list[tuple[str, Line2D]]:
    """Return the key of policies."""
    return [(look.label, _line(look)) for look in looks.values()]


def _line(look: Look) -> Line2D:
    return Line2D(
        [],
        [],
        color=look.color,
        marker=look.mark,
        linewidth=look.width,
        linestyle=look.dashes,
        markersize=5,
    )


def _draw(
    shown: Sequence[Panel],
    x_of: Callable[[Result], float],
    x_label: str,
    looks: dict[str, Look],
    words: panels.Words,
    prepare: Callable[[Axes], None],
    columns: int,
) -> Figure:
    rows, columns = panels.grid_of(len(shown), min(columns, MAX_COLUMNS))
    figure, grid = panels.panel_figure(panels.Shape(rows, columns, PANEL_IN), words, key_of(looks))
    every = [axes for row in grid for axes in row]
    for axes in every[len(shown) :]:
        axes.remove()
    for number, (axes, panel) in enumerate(zip(every, shown, strict=False)):
        _draw_panel(axes, panel, x_of, looks)
        panels.dress(axes, title=panel.title)
        prepare(axes)
        is_left, is_last = number % columns == 0, number + columns >= len(shown)
        panels.label(axes, x=x_label if is_last else "", y="tokens/s, simulated" if is_left else "")
    return figure


def _draw_panel(
    axes: Axes, panel: Panel, x_of: Callable[[Result], float], looks: dict[str, Look]
) -> None:
    for policy, look in looks.items():
        points = sorted(
            (x_of(r), r.metrics.tokens_per_s) for r in panel.results if r.policy == policy
        )
        axes.plot(
            [x for x, _ in points],
            [y for _, y in points],
            color=look.color,
            marker=look.mark,
            linewidth=look.width,
            linestyle=look.dashes,
            markersize=5,
            zorder=3 if look.width > 2 else 2,
        )
    axes.set_ylim(bottom=0)
