"""How every picture looks: one palette, one font size, one way to save."""

from __future__ import annotations

from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont
from matplotlib.ft2font import FT2Font

INK = "#1f2933"
MUTED = "#8a96a3"
FAINT = "#d9dee4"
ACCENT = "#1769aa"
ACCENT_PALE = "#dcebf7"
GOOD = "#2b8a3e"
COST = "#d9730d"
PAPER = "#ffffff"
RULES = ("#8e44ad", "#c0392b", "#16a085", "#b8860b", "#2c3e50", "#d35400")
"""One colour for each rule that is held against the choice."""
DPI = 160

_SETTINGS = {"svg.hashsalt": "specfit", "svg.fonttype": "path"}
_SHOWN_AS = {"\n": "↵", "\r": "↵", "\t": "⇥", " ": "␣"}


def new_figure(width_in: float, height_in: float) -> Figure:
    """Return an empty figure on the palette's paper."""
    return Figure(figsize=(width_in, height_in), facecolor=PAPER)


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write the figure as ``stem.png`` and ``stem.svg`` and return both paths."""
    paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    with rc_context(_SETTINGS):
        figure.savefig(paths[0], dpi=DPI)
        figure.savefig(paths[1], metadata={"Date": None})
    return paths


def visible(text: str, limit: int) -> str:
    """Return a token's text with blanks made visible, at most `limit` characters long."""
    known = FT2Font(findfont("DejaVu Sans")).get_charmap()
    shown = "".join(_SHOWN_AS.get(c, c if ord(c) in known else "□") for c in text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
