"""Who shows a watched run as it goes: a panel, lines, or rows."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from specfit.cli.console import print_json, print_note
from specfit.cli.watch_panel import Run, log_line, panel
from specfit.core.decode import CycleRecord, Observer

if TYPE_CHECKING:
    from rich.live import Live as LiveDisplay

LOG_EVERY_S = 1.0
"""Seconds between two lines where stdout is no terminal."""


class Panel(Observer):
    """Redraws the panel after each cycle."""

    def __init__(self, run: Run, display: LiveDisplay, title: str) -> None:
        self._run = run
        self._display = display
        self._title = title

    def on_cycle(self, record: CycleRecord) -> None:
        """Redraw."""
        size = self._display.console.size
        shown = panel(self._run, self._title, columns=size.width, lines=size.height - 1)
        self._display.update(shown, refresh=True)


class Log(Observer):
    """Writes a line a second, and one at the end."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._written_at = time.monotonic()

    def on_cycle(self, record: CycleRecord) -> None:
        """Write a line if it is time."""
        if record.stop_reason or time.monotonic() - self._written_at >= LOG_EVERY_S:
            print_note(log_line(self._run))
            self._written_at = time.monotonic()


class Rows(Observer):
    """Prints one JSON object a cycle."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def on_cycle(self, record: CycleRecord) -> None:
        """Print the row of a cycle."""
        print_json([self.row(record)])

    def row(self, record: CycleRecord) -> dict[str, Any]:
        """Return what happened in a cycle."""
        run, outcome, timings = self._run, record.outcome, record.timings
        plain = run.plain.paced_tokens_per_s
        return {
            "cycle": run.num_cycles - 1,
            "text": "".join(piece for piece, _ in run.pieces[-record.num_committed :]),
            "tokens": list(outcome.committed),
            "num_drafted": len(outcome.cycle.tree),
            "num_verified": record.num_verified,
            "num_accepted": len(outcome.accepted),
            "num_misses": int(outcome.verification.num_misses.sum()),
            "draft_s": timings.draft_s,
            "select_s": timings.select_s,
            "stall_s": timings.stall_s,
            "compute_s": timings.compute_s,
            "commit_s": timings.commit_s,
            "tokens_per_s": run.tokens_per_s,
            "estimated_plain_tokens_per_s": plain,
        }
