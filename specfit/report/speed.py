"""The picture of speed by policy: measured with intervals, simulated beside."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specfit.report import style

ROW_IN = 0.62
WIDTH_IN = 8.6
HEAD_IN = 1.08
FOOT_IN = 0.75
LEFT_IN = 2.05
RIGHT_IN = 1.75


@dataclass(frozen=True)
class SpeedBar:
    """One policy in the picture.

    Parameters
    ----------
    label, detail : str
        Name, and what must be known beside it: parameters, cache.
    tokens_per_s : float
        Measured decode throughput.
    low, high : float
        Ends of its 95 % interval.
    simulated_tokens_per_s : float
        Throughput of the replayed trace.
    speedup : str
        Speed-up over plain decoding with its interval, as text.
    is_ours : bool
        Whether the bar is the one to look at.
    """

    label: str
    detail: str
    tokens_per_s: float
    low: float
    high: float
    simulated_tokens_per_s: float
    speedup: str
    is_ours: bool = False


def draw_speed(
    bars: Sequence[SpeedBar], *, title: str, caption: str, reference: SpeedBar | None = None
) -> Figure:
    """Draw one bar a policy, first on top; a dashed line marks the reference."""
    height = HEAD_IN + ROW_IN * len(bars) + FOOT_IN
    figure = style.new_figure(WIDTH_IN, height)
    figure.text(0.35 / WIDTH_IN, 1 - 0.36 / height, title, size=12, weight="bold", color=style.INK)
    figure.text(
        0.35 / WIDTH_IN,
        1 - 0.46 / height,
        caption,
        size=8.5,
        color=style.MUTED,
        va="top",
        linespacing=1.4,
    )
    axes = figure.add_axes(
        (
            LEFT_IN / WIDTH_IN,
            FOOT_IN / height,
            1 - (LEFT_IN + RIGHT_IN) / WIDTH_IN,
            ROW_IN * len(bars) / height,
        )
    )
    _draw_bars(axes, bars)
    if reference is not None:
        axes.axvline(reference.tokens_per_s, color=style.INK, linewidth=0.9, linestyle=(0, (4, 3)))
    _dress(axes, bars)
    return figure


def _draw_bars(axes: Axes, bars: Sequence[SpeedBar]) -> None:
    top = max(max(b.high, b.simulated_tokens_per_s) for b in bars)
    axes.set(xlim=(0, top * 1.04), ylim=(len(bars) - 0.5, -0.5))
    for row, bar in enumerate(bars):
        color = style.ACCENT if bar.is_ours else style.MUTED
        axes.barh(
            row, bar.tokens_per_s, height=0.52, color=color, alpha=1.0 if bar.is_ours else 0.55
        )
        if bar.low < bar.high:
            spread = [[bar.tokens_per_s - bar.low], [bar.high - bar.tokens_per_s]]
            axes.errorbar(bar.tokens_per_s, row, xerr=spread, color=style.INK, capsize=3, lw=1.2)
        axes.plot(
            bar.simulated_tokens_per_s,
            row,
            "D",
            color=style.PAPER,
            mec=style.COST,
            mew=1.4,
            ms=6,
            zorder=5,
        )
        axes.text(
            1.02,
            row,
            f"{bar.tokens_per_s:.1f} tokens/s\n{bar.speedup}",
            size=8.5,
            va="center",
            color=style.INK,
            transform=axes.get_yaxis_transform(),
            linespacing=1.35,
        )
        axes.text(
            -0.025,
            row - 0.11,
            bar.label,
            size=9.5,
            va="center",
            ha="right",
            color=style.INK,
            weight="bold" if bar.is_ours else "normal",
            transform=axes.get_yaxis_transform(),
        )
        axes.text(
            -0.025,
            row + 0.19,
            bar.detail,
            size=7.5,
            va="center",
            ha="right",
            color=style.MUTED,
            transform=axes.get_yaxis_transform(),
        )


def _dress(axes: Axes, bars: Sequence[SpeedBar]) -> None:
    axes.set_yticks([])
    axes.tick_params(axis="x", colors=style.MUTED, labelsize=8, length=3)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(style.FAINT)
    axes.xaxis.grid(True, color=style.FAINT, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_xlabel(
        "tokens/s     bar: measured, 95 % interval of the speed-up     ◇ simulated, trace replayed",
        size=8.5,
        color=style.INK,
        labelpad=8,
    )
