"""What a wider pass needs, and what a deeper node is worth: unions of experts, acceptance."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator

from specfit.report import panels, style
from specfit.report.naming import Look, trace_names
from specfit.report.speed_charts import key_of
from specfit.sim.results import Result, Results, depth_counts, union_counts

PANEL_IN = (3.5, 2.5)
MAX_COLUMNS = 3
FEWEST = 20
"""Passes or nodes below which a mean is left out."""


def draw_unions(results: Results, looks: dict[str, Look], words: panels.Words) -> Figure:
    """Draw the distinct experts of a layer against the verified nodes, a panel for each trace.

    Beside the policies the line of tokens that choose their experts independently.
    """
    key = [*key_of(looks), ("independent tokens", _independent())]

    def draw(axes: Axes, of_trace: Results) -> None:
        widest = 1
        for policy, look in looks.items():
            counts = [
                count
                for count in union_counts(_rows(of_trace, policy))
                if count.num_passes >= FEWEST
            ]
            widest = max([widest, *(count.num_nodes for count in counts)])
            layers = of_trace.results[0].num_layers
            _line(
                axes,
                look,
                [count.num_nodes for count in counts],
                [count.experts_per_pass / layers for count in counts],
            )
        nodes = np.linspace(1, max(widest, 2), 100)
        line = _independent()
        line.set_data(nodes, independent_union(of_trace.results[0], nodes))
        axes.add_line(line)
        top = independent_union(of_trace.results[0], nodes)[-1]
        axes.set(xlim=(0, widest + 1), ylim=(0, 1.05 * float(top)))

    return _draw(results, words, key, draw, "verified nodes", "distinct experts a layer")


def draw_acceptance(results: Results, looks: dict[str, Look], words: panels.Words) -> Figure | None:
    """Draw the share of verified nodes that was accepted at each depth, a panel for each trace."""
    drafting = {p: look for p, look in looks.items() if depth_counts(_rows(results, p))}
    if not drafting:
        return None

    def draw(axes: Axes, of_trace: Results) -> None:
        for policy, look in drafting.items():
            counts = [c for c in depth_counts(_rows(of_trace, policy)) if c.num_verified >= FEWEST]
            _line(axes, look, [c.depth for c in counts], [c.acceptance_rate for c in counts])
        axes.set(ylim=(0, 1.04))
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))

    return _draw(results, words, key_of(drafting), draw, "depth", "accepted of verified nodes")


def independent_union(
    result: Result, nodes: np.ndarray[tuple[int], np.dtype[np.float64]]
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """Return E (1 - (1 - K/E)^n): the experts that n tokens need if each draws K of E."""
    share = result.experts_per_token / result.num_experts
    union: np.ndarray[tuple[int], np.dtype[np.float64]] = result.num_experts * (
        1 - (1 - share) ** nodes
    )
    return union


def _independent() -> Line2D:
    return Line2D([], [], color=style.MUTED, linewidth=1.2, linestyle=(0, (2, 2)))


def _rows(results: Results, policy: str) -> list[dict[str, object]]:
    return [row for result in results if result.policy == policy for row in result.rows]


def _line(axes: Axes, look: Look, x: Sequence[float], y: Sequence[float]) -> None:
    axes.plot(
        x,
        y,
        color=look.color,
        marker=look.mark,
        linewidth=look.width,
        linestyle=look.dashes,
        markersize=4.5,
    )


def _draw(
    results: Results,
    words: panels.Words,
    key: Sequence[tuple[str, Line2D]],
    draw: Callable[[Axes, Results], None],
    x_label: str,
    y_label: str,
) -> Figure:
    names = trace_names(results.traces)
    shape = panels.Shape(*panels.grid_of(len(names), MAX_COLUMNS), PANEL_IN)
    figure, grid = panels.panel_figure(shape, words, key)
    every = [axes for row in grid for axes in row]
    for axes in every[len(names) :]:
        axes.remove()
    for axes, (trace, name) in zip(every, names.items(), strict=False):
        panels.dress(axes, title=name)
        draw(axes, results.of_trace(trace))
        panels.label(axes, x=x_label, y=y_label)
    return figure
