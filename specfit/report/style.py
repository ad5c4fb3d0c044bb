"""How every picture looks: one palette, one font size, one way to save."""

from __future__ import annotations

import io
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib import rc_context
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont
from matplotlib.ft2font import FT2Font

INK = "#1f2933"
MUTED = "#8a96a3"
DIM = "#5f6b77"
FAINT = "#d9dee4"
ACCENT = "#1769aa"
ACCENT_PALE = "#dcebf7"
GOOD = "#2b8a3e"
COST = "#d9730d"
PAPER = "#ffffff"
RULES = ("#8e44ad", "#c0392b", "#16a085", "#b8860b", "#2c3e50", "#d35400")
"""One colour for each rule that is held against the choice."""
DPI = 160
CAPTION_CHARACTER_IN = 0.065
"""Width of a character of a caption, on average."""

_SETTINGS = {"svg.hashsalt": "specfit", "svg.fonttype": "path"}
_SHOWN_AS = {"\n": "↵", "\r": "↵", "\t": "⇥", " ": "␣"}


def new_figure(width_in: float, height_in: float) -> Figure:
    """Return an empty figure on the palette's paper."""
    return Figure(figsize=(width_in, height_in), facecolor=PAPER)


def save(figure: Figure, stem: Path) -> list[Path]:
    """Write the figure as ``stem.png`` and ``stem.svg``, each in one step; return both paths."""
    paths = [stem.with_suffix(".png"), stem.with_suffix(".svg")]
    drawn = [_bytes(figure, format="png", dpi=DPI), svg_bytes(figure)]
    for path, content in zip(paths, drawn, strict=True):
        partial = path.with_name(f".{path.name}.partial")
        partial.write_bytes(content)
        partial.replace(path)
    return paths


def svg_bytes(figure: Figure) -> bytes:
    """Return the figure as SVG, the same bytes for the same figure."""
    return _bytes(figure, format="svg", metadata={"Date": None})


def _bytes(figure: Figure, **given: Any) -> bytes:
    buffer = io.BytesIO()
    with rc_context(_SETTINGS):
        figure.savefig(buffer, **given)
    return buffer.getvalue()


def wrapped(text: str, width_in: float) -> list[str]:
    """Return a caption as lines that fit so many inches."""
    return textwrap.wrap(text, int(width_in / CAPTION_CHARACTER_IN)) or [""]


def pale(color: str, share: float) -> tuple[float, float, float]:
    """Return a colour mixed with the paper: 0 is the paper, 1 the colour."""
    ink, paper = np.array(to_rgb(color)), np.array(to_rgb(PAPER))
    red, green, blue = (share * ink + (1 - share) * paper).tolist()
    return red, green, blue


def visible_label(text: str, limit: int) -> str:
    """Return a name, at most `limit` characters long."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def visible(text: str, limit: int) -> str:
    """Return a token's text with blanks made visible, at most `limit` characters long."""
    known = FT2Font(findfont("DejaVu Sans")).get_charmap()
    shown = "".join(_SHOWN_AS.get(c, c if ord(c) in known else "□") for c in text)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
