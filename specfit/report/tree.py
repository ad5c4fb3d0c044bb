"""The picture of one drafted tree: chosen nodes, what the target accepted, what each node costs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Circle, FancyBboxPatch, PathPatch, Rectangle
from matplotlib.path import Path as Curve
from numpy.typing import NDArray

from specfit.core.tree import DraftTree
from specfit.report import style

ROW_IN = 0.30
COLUMN_IN = 2.25
CARD_IN = (1.78, 0.235)
MARGIN_IN = 0.35
HEAD_IN = 1.4
DOT_IN = 0.03
TOKEN_CHARS = 11


@dataclass(frozen=True, eq=False)
class TreeView:
    """What the picture of a drafted tree shows.

    Parameters
    ----------
    tree : DraftTree
        N nodes.
    texts : tuple of str
        Text of each node's token.
    accept_probs : float64[N]
        Calibrated probability that a node is accepted given that its parent is.
    expert_s : float64[N]
        Marginal expert seconds of each node.
    selected, accepted : bool[N]
        The nodes that were verified, and of those the ones that the target agreed with.
    title, caption : str
        Above the tree; the caption has at most two lines.
    rules : mapping of str to bool[N]
        What other rules would verify: a dot of their colour beside the node.
    """

    tree: DraftTree
    texts: tuple[str, ...]
    accept_probs: NDArray[np.float64]
    expert_s: NDArray[np.float64]
    selected: NDArray[np.bool_]
    accepted: NDArray[np.bool_]
    title: str
    caption: str
    rules: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)


def draw_tree(view: TreeView) -> Figure:
    """Draw a drafted tree from left to right, one card a node."""
    rows = leaf_rows(view.tree)
    levels = view.tree.num_levels
    width = max(levels * COLUMN_IN + CARD_IN[0] + 2 * MARGIN_IN, 8.2)
    height = HEAD_IN + (rows.max() + 1) * ROW_IN + MARGIN_IN
    figure = style.new_figure(width, height)
    axes = figure.add_axes((0, 0, 1, 1), frameon=False, xticks=[], yticks=[])
    axes.set(xlim=(0, width), ylim=(height, 0))
    _draw_head(axes, view)
    x = MARGIN_IN + view.tree.depths * COLUMN_IN
    y = HEAD_IN + (rows + 0.5) * ROW_IN
    for node in np.lexsort((np.arange(len(rows)), view.selected)).tolist():
        if node:
            parent = int(view.tree.parents[node])
            _draw_edge(axes, view, node, (x[parent] + CARD_IN[0], y[parent]), (x[node], y[node]))
    for node in range(len(rows)):
        _draw_card(axes, view, node, float(x[node]), float(y[node]))
    return figure


def leaf_rows(tree: DraftTree) -> NDArray[np.float64]:
    """Return each node's row, float64[N]: leaves one below the other, parents at their middle."""
    rows = np.zeros(len(tree))
    next_row = 0
    pending = [(0, False)]
    while pending:
        node, is_placed = pending.pop()
        children = tree.children(node).tolist()
        if not children:
            rows[node] = next_row
            next_row += 1
        elif is_placed:
            rows[node] = (rows[children[0]] + rows[children[-1]]) / 2
        else:
            pending.append((node, True))
            pending.extend((child, False) for child in reversed(children))
    return rows


def _draw_head(axes: Axes, view: TreeView) -> None:
    axes.text(
        MARGIN_IN, 0.33, view.title, size=12, weight="bold", color=style.INK, parse_math=False
    )
    axes.text(
        MARGIN_IN,
        0.46,
        view.caption,
        size=8.5,
        color=style.MUTED,
        va="top",
        linespacing=1.4,
        parse_math=False,
    )
    x, y = MARGIN_IN, 1.02
    legend = (
        (style.ACCENT_PALE, style.GOOD, "chosen and accepted"),
        (style.ACCENT_PALE, style.ACCENT, "chosen"),
        (style.PAPER, style.FAINT, "drafted only"),
    )
    for fill, edge, label in legend:
        axes.add_patch(_card((x, y - 0.07), (0.24, 0.14), fill, edge, 1.3))
        axes.text(x + 0.32, y, label, size=8, color=style.INK, va="center")
        x += 0.55 + 0.068 * len(label)
    axes.add_patch(Rectangle((x, y - 0.02), 0.24, 0.04, color=style.COST))
    label = f"marginal expert time (longest bar: {_ms(float(view.expert_s[1:].max(initial=0)))})"
    axes.text(x + 0.32, y, label, size=8, color=style.INK, va="center")
    _draw_rule_names(axes, view, y + 0.2)


def _draw_rule_names(axes: Axes, view: TreeView, y: float) -> None:
    x = MARGIN_IN
    for name, color in zip(view.rules, style.RULES, strict=False):
        axes.add_patch(Circle((x + 0.05, y), DOT_IN, color=color))
        axes.text(x + 0.14, y, name, size=8, color=style.INK, va="center", parse_math=False)
        x += 0.4 + 0.068 * len(name)
    if view.rules:
        label = "would verify a node with this dot"
        axes.text(x, y, label, size=8, color=style.MUTED, va="center")


def _draw_edge(
    axes: Axes, view: TreeView, node: int, start: tuple[float, float], end: tuple[float, float]
) -> None:
    middle = (start[0] + end[0]) / 2
    curve = Curve(
        [start, (middle, start[1]), (middle, end[1]), end],
        [Curve.MOVETO, Curve.CURVE4, Curve.CURVE4, Curve.CURVE4],
    )
    color = style.FAINT
    if view.selected[node]:
        color = style.GOOD if view.accepted[node] else style.ACCENT
    width = 1.4 if view.selected[node] else 0.8
    axes.add_patch(PathPatch(curve, fill=False, edgecolor=color, linewidth=width))


def _draw_card(axes: Axes, view: TreeView, node: int, x: float, y: float) -> None:
    width, height = CARD_IN
    chosen = bool(view.selected[node])
    edge = style.GOOD if view.accepted[node] else style.ACCENT if chosen else style.FAINT
    fill = style.ACCENT_PALE if chosen else style.PAPER
    axes.add_patch(_card((x, y - height / 2), CARD_IN, fill, edge, 1.3 if chosen else 0.8))
    text = style.visible(view.texts[node], TOKEN_CHARS)
    ink = style.INK if chosen else style.MUTED
    weight = "bold" if chosen else "normal"
    axes.text(x + 0.08, y, text, size=8, color=ink, weight=weight, va="center", parse_math=False)
    _draw_dots(axes, view, node, x + width, y)
    if node == 0:
        axes.text(x + width - 0.08, y, "root", size=7.5, color=ink, va="center", ha="right")
        return
    label = f"{view.accept_probs[node]:.0%}   {_ms(float(view.expert_s[node]))}"
    axes.text(x + width - 0.08, y, label, size=7.5, color=ink, va="center", ha="right")
    share = view.expert_s[node] / max(float(view.expert_s[1:].max()), 1e-12)
    bar = ((width - 0.1) * share, 0.022)
    axes.add_patch(
        Rectangle(
            (x + 0.05, y + height / 2 - 0.03), *bar, color=style.COST, alpha=1 if chosen else 0.4
        )
    )


def _draw_dots(axes: Axes, view: TreeView, node: int, x: float, y: float) -> None:
    """Draw what other rules would verify to the right of a card, whose right edge is at x."""
    for place, (mask, color) in enumerate(zip(view.rules.values(), style.RULES, strict=False)):
        if node and mask[node]:
            axes.add_patch(Circle((x + 0.07 + 2.4 * DOT_IN * place, y), DOT_IN, color=color))


def _card(
    corner: tuple[float, float], size: tuple[float, float], fill: str, edge: str, line: float
) -> FancyBboxPatch:
    shape = "round,pad=0,rounding_size=0.05"
    return FancyBboxPatch(
        corner, *size, boxstyle=shape, facecolor=fill, edgecolor=edge, linewidth=line
    )


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f} ms" if seconds < 0.01 else f"{seconds * 1e3:.1f} ms"
