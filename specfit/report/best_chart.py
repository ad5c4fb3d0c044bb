"""Which policy is fastest where: a map over caches and links."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from specfit.report import panels, style
from specfit.report.naming import PLAIN, Look, link_name
from specfit.sim.results import Place, Results

CELL_IN = (2.0, 0.56)
LABELS_IN = 0.75
NAME_CHARS = 30


@dataclass(frozen=True)
class Winner:
    """The fastest policy at a place.

    Parameters
    ----------
    policy : str
        Spec.
    speedup : float or None
        Over plain decoding at the same place, if it was tried.
    next_policy : str or None
        The second fastest, if there is one.
    lead : float
        How much faster than that, as a share.
    """

    policy: str
    speedup: float | None
    next_policy: str | None
    lead: float


def winner_at(results: Results, place: Place) -> Winner | None:
    """Return the fastest policy at a place; None where nothing was tried."""
    here = results.at(place)
    if not here:
        return None
    best = results.best(place)
    others = [r for r in here if r is not best and not r.is_reference]
    second = max(others, key=lambda r: r.metrics.tokens_per_s, default=None)
    plain = results.baseline(place, PLAIN)
    return Winner(
        best.policy,
        best.metrics.tokens_per_s / plain.metrics.tokens_per_s if plain else None,
        second.policy if second else None,
        best.metrics.tokens_per_s / second.metrics.tokens_per_s - 1 if second else 0.0,
    )


def draw_best(results: Results, looks: dict[str, Look], words: panels.Words) -> Figure | None:
    """Draw the fastest policy of one trace for each cache and link; None for a single place."""
    if len(results.places) < 2:
        return None
    size = (CELL_IN[0] * len(results.links), CELL_IN[1] * len(results.caches))
    shape = panels.Shape(1, 1, size, left_in=LABELS_IN, above_in=0.1, below_in=0.5)
    figure, ((axes,),) = panels.panel_figure(shape, words, [])
    (trace,) = results.traces
    for row, cache in enumerate(results.caches):
        for column, link in enumerate(results.links):
            found = winner_at(results, Place(trace, link, cache))
            if found is not None:
                _draw_cell(axes, (column, row), found, looks)
    axes.set(xlim=(0, len(results.links)), ylim=(0, len(results.caches)))
    axes.set_xticks(
        [i + 0.5 for i in range(len(results.links))], list(map(link_name, results.links))
    )
    axes.set_yticks([i + 0.5 for i in range(len(results.caches))], list(results.caches))
    axes.tick_params(colors=style.INK, labelsize=8.5, length=0, pad=5)
    for side in axes.spines.values():
        side.set_visible(False)
    panels.label(axes, x="link, host to device")
    return figure


def _draw_cell(axes: Axes, at: tuple[int, int], winner: Winner, looks: dict[str, Look]) -> None:
    look = looks[winner.policy]
    axes.add_patch(
        Rectangle(
            at, 1, 1, facecolor=style.pale(look.color, 0.3), edgecolor=style.PAPER, linewidth=2.5
        )
    )
    x, y = at[0] + 0.5, at[1] + 0.5
    name = style.visible_label(look.label, NAME_CHARS)
    axes.text(x, y + 0.22, name, size=8.5, weight="bold", ha="center", va="center", color=style.INK)
    gain = "" if winner.speedup is None else f"{winner.speedup:.2f} x plain"
    axes.text(x, y - 0.04, gain, size=8, ha="center", va="center", color=style.INK)
    if winner.next_policy is not None:
        second = style.visible_label(looks[winner.next_policy].label, NAME_CHARS - 4)
        text = f"+{winner.lead:.1%} on {second}"
        axes.text(x, y - 0.27, text, size=7, ha="center", va="center", color=style.INK)
