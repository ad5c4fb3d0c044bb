"""The picture of simulated speeds: a bar a policy and cache, with the gain over plain decoding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specfit.report import style
from specfit.sim.metrics import Interval

WIDTH_IN = 8.6
ROW_IN = 0.42
HEAD_IN = 0.85
FOOT_IN = 0.65
LEFT_IN = 3.0
RIGHT_IN = 1.5


@dataclass(frozen=True)
class SimulatedBar:
    """One policy with one cache in the picture.

    Parameters
    ----------
    policy, cache : str
        Specs.
    tokens_per_s : float
        Simulated decode throughput.
    speedup : Interval, optional
        Over plain decoding with the same cache, where that was replayed too.
    """

    policy: str
    cache: str
    tokens_per_s: float
    speedup: Interval | None


def draw_simulated(bars: Sequence[SimulatedBar], *, caption: str) -> Figure:
    """Draw one bar a policy and cache, first on top; all of them are simulated."""
    height = HEAD_IN + ROW_IN * len(bars) + FOOT_IN
    figure = style.new_figure(WIDTH_IN, height)
    place = 0.3 / WIDTH_IN
    title = "Simulated tokens a second"
    figure.text(place, 1 - 0.34 / height, title, size=12, weight="bold", color=style.INK)
    figure.text(place, 1 - 0.44 / height, caption, size=8.5, color=style.MUTED, va="top")
    across = 1 - (LEFT_IN + RIGHT_IN) / WIDTH_IN
    axes = figure.add_axes(
        (LEFT_IN / WIDTH_IN, FOOT_IN / height, across, ROW_IN * len(bars) / height)
    )
    _draw_bars(axes, bars)
    return figure


def _draw_bars(axes: Axes, bars: Sequence[SimulatedBar]) -> None:
    best = {c: max(b.tokens_per_s for b in bars if b.cache == c) for c in {b.cache for b in bars}}
    for row, bar in enumerate(bars):
        is_best = bar.tokens_per_s == best[bar.cache]
        axes.barh(row, bar.tokens_per_s, 0.6, color=style.ACCENT if is_best else style.MUTED)
        axes.text(
            1.02,
            row,
            f"{bar.tokens_per_s:.1f}" + _gain(bar.speedup),
            size=8.5,
            va="center",
            color=style.INK,
            transform=axes.get_yaxis_transform(),
        )
    axes.set_yticks(
        range(len(bars)), [f"{style.visible(bar.policy, 34)}\n{bar.cache}" for bar in bars]
    )
    axes.set(xlim=(0, 1.04 * max(b.tokens_per_s for b in bars)), ylim=(len(bars) - 0.5, -0.5))
    axes.tick_params(colors=style.INK, labelsize=8, length=0)
    axes.set_xlabel("tokens/s, simulated; blue is the fastest with its cache", size=8.5)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(style.FAINT)


def _gain(speedup: Interval | None) -> str:
    if speedup is None:
        return ""
    return f"   {speedup.estimate:.2f}x ({speedup.low:.2f} to {speedup.high:.2f})"
