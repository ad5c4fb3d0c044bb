"""The picture of how far predicted probabilities are from what happened."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specfit.core.reliability import ReliabilityCurve
from specfit.report import style

WIDTH_IN = 4.2
HEIGHT_IN = 4.9
LEFT_IN = 0.75


def draw_reliability(
    panels: Sequence[tuple[str, Sequence[ReliabilityCurve]]], *, title: str
) -> Figure:
    """Draw one panel a group: realised against predicted, the diagonal is perfect.

    A dot's area is the share of the predictions that it stands for.

    Parameters
    ----------
    panels : sequence of (name, curves)
        The last curve of a panel is the one to look at.
    """
    width = WIDTH_IN * len(panels)
    figure = style.new_figure(width, HEIGHT_IN)
    figure.text(0.25 / width, 1 - 0.35 / HEIGHT_IN, title, size=11, weight="bold", color=style.INK)
    for i, (name, curves) in enumerate(panels):
        box = (i * WIDTH_IN + LEFT_IN, 0.65, WIDTH_IN - LEFT_IN - 0.25, HEIGHT_IN - 1.6)
        scale = (width, HEIGHT_IN, width, HEIGHT_IN)
        left, bottom, across, up = (part / s for part, s in zip(box, scale, strict=True))
        _draw_panel(figure.add_axes((left, bottom, across, up)), name, curves)
    return figure


def _draw_panel(axes: Axes, name: str, curves: Sequence[ReliabilityCurve]) -> None:
    axes.plot([0, 1], [0, 1], color=style.FAINT, linewidth=1.2)
    for curve, color in zip(curves, (style.MUTED, style.ACCENT)[-len(curves) :], strict=True):
        seen = curve.counts > 0
        size = 12 + 300 * curve.counts[seen] / curve.counts.sum()
        axes.plot(curve.predicted[seen], curve.realised[seen], color=color, linewidth=1.3)
        axes.scatter(
            curve.predicted[seen], curve.realised[seen], size, color=color, alpha=0.55, lw=0
        )
        axes.plot([], [], "o-", color=color, label=curve.label)
    axes.set(xlim=(-0.02, 1.02), ylim=(-0.02, 1.02))
    axes.set_title(name, size=9.5, color=style.INK, loc="left")
    axes.set_xlabel("predicted", size=8.5, color=style.INK)
    axes.set_ylabel("realised", size=8.5, color=style.INK)
    axes.tick_params(colors=style.MUTED, labelsize=8, length=3)
    axes.legend(frameon=False, fontsize=8, loc="upper left")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(style.FAINT)
