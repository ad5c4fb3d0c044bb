"""Pictures of several panels: a head, a key, a grid of axes, all placed in inches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from specfit.report import style

MARGIN_IN = 0.3
TITLE_IN = 0.34
CAPTION_LINE_IN = 0.17
KEY_LINE_IN = 0.25
CHARACTER_IN = 0.072
KEY_MARK_IN = 0.62
MIN_WIDTH_IN = 8.2


@dataclass(frozen=True)
class Words:
    """What stands above the panels: a title, and lines that say what is shown and how it came."""

    title: str
    caption: Sequence[str]


@dataclass(frozen=True)
class Shape:
    """Rows and columns of panels, and the inches of each and around each."""

    rows: int
    columns: int
    panel_in: tuple[float, float]
    left_in: float = 0.62
    right_in: float = 0.12
    above_in: float = 0.32
    below_in: float = 0.5

    @property
    def cell_in(self) -> tuple[float, float]:
        """Width and height of a panel with what is around it."""
        width = self.left_in + self.panel_in[0] + self.right_in
        return width, self.above_in + self.panel_in[1] + self.below_in


def grid_of(count: int, most_columns: int) -> tuple[int, int]:
    """Return the rows and columns of so many panels: as few rows as can be, evenly filled."""
    rows = -(-count // most_columns)
    return rows, -(-count // rows)


def panel_figure(
    shape: Shape, words: Words, key: Sequence[tuple[str, Artist]], *, first_left_in: float = 0.0
) -> tuple[Figure, list[list[Axes]]]:
    """Return a figure with a head and its axes, row by row.

    Parameters
    ----------
    key : sequence of (str, Artist)
        Labels and what they stand for; broken into lines that fit.
    first_left_in : float
        More room at the left of the first column, for long labels.
    """
    cell_width, cell_height = shape.cell_in
    width = max(2 * MARGIN_IN + first_left_in + shape.columns * cell_width, MIN_WIDTH_IN)
    caption = [line for text in words.caption for line in style.wrapped(text, width - 0.6)]
    lines = _key_lines([label for label, _ in key], width - 2 * MARGIN_IN)
    head = MARGIN_IN + TITLE_IN + CAPTION_LINE_IN * len(caption) + KEY_LINE_IN * len(lines) + 0.1
    height = head + shape.rows * cell_height + 0.1
    figure = style.new_figure(width, height)
    _draw_head(figure, words.title, caption)
    _draw_key(figure, key, lines, head - KEY_LINE_IN * len(lines) - 0.06)
    axes = [
        [
            figure.add_axes(
                (
                    (MARGIN_IN + first_left_in + column * cell_width + shape.left_in) / width,
                    1 - (head + row * cell_height + shape.above_in + shape.panel_in[1]) / height,
                    shape.panel_in[0] / width,
                    shape.panel_in[1] / height,
                )
            )
            for column in range(shape.columns)
        ]
        for row in range(shape.rows)
    ]
    return figure, axes


def dress(axes: Axes, *, title: str = "", grid: Literal["x", "y"] = "y") -> None:
    """Give axes the look of all pictures."""
    axes.set_title(title, size=9, color=style.INK, loc="left", pad=6)
    axes.tick_params(colors=style.DIM, labelsize=8, length=3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(style.FAINT)
    axes.grid(True, axis=grid, color=style.FAINT, linewidth=0.6)
    axes.set_axisbelow(True)


def label(axes: Axes, *, x: str = "", y: str = "") -> None:
    """Name the axes."""
    axes.set_xlabel(x, size=8.5, color=style.INK, labelpad=4)
    axes.set_ylabel(y, size=8.5, color=style.INK, labelpad=5)


def _draw_head(figure: Figure, title: str, caption: Sequence[str]) -> None:
    width, height = figure.get_size_inches()
    x = MARGIN_IN / width
    y = 1 - (MARGIN_IN + 0.14) / height
    figure.text(x, y, title, size=12, weight="bold", color=style.INK, parse_math=False)
    for number, line in enumerate(caption):
        top = MARGIN_IN + TITLE_IN + CAPTION_LINE_IN * number
        figure.text(
            x, 1 - top / height, line, size=8.5, color=style.DIM, va="center", parse_math=False
        )


def _draw_key(
    figure: Figure, key: Sequence[tuple[str, Artist]], lines: Sequence[int], top_in: float
) -> None:
    width, height = figure.get_size_inches()
    start = 0
    for number, count in enumerate(lines):
        entries = key[start : start + count]
        start += count
        figure.legend(
            [artist for _, artist in entries],
            [text for text, _ in entries],
            loc="upper left",
            bbox_to_anchor=(
                (MARGIN_IN - 0.06) / width,
                1 - (top_in + KEY_LINE_IN * number) / height,
            ),
            ncols=count,
            frameon=False,
            fontsize=8.5,
            labelcolor=style.INK,
            handlelength=2.2,
            columnspacing=1.4,
            borderaxespad=0,
            borderpad=0.2,
        )


def _key_lines(labels: Sequence[str], width_in: float) -> list[int]:
    """Return how many entries each line of the key takes."""
    lines: list[int] = []
    left_in = 0.0
    for text in labels:
        needed = KEY_MARK_IN + CHARACTER_IN * len(text)
        if not lines or needed > left_in:
            lines.append(0)
            left_in = width_in
        lines[-1] += 1
        left_in -= needed
    return lines
