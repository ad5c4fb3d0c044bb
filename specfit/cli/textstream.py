"""Showing a text while it comes: nothing is shown that a later token could still change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TextIO

from specfit.core.backend import Prefill, Request
from specfit.core.decode import CycleRecord, Observer

if TYPE_CHECKING:
    from rich.progress import Progress, TaskID

UNFINISHED = "\ufffd"
"""What a tokenizer writes for bytes that are not yet a whole character."""


class TokenBar(Observer):
    """Moves a progress bar as tokens come.

    Parameters
    ----------
    bars : Progress
        The progress display.
    label : str
        What the bar is called.
    """

    def __init__(self, bars: Progress, label: str) -> None:
        self._bars = bars
        self._label = label
        self._task: TaskID | None = None

    def on_start(self, request: Request, prefill: Prefill) -> None:
        """Show the bar."""
        total = request.max_new_tokens
        self._task = self._bars.add_task(self._label, total=total, completed=1)

    def on_cycle(self, record: CycleRecord) -> None:
        """Count what a cycle committed."""
        assert self._task is not None, "a request starts before its cycles"
        self._bars.advance(self._task, record.num_committed)

    def on_end(self, tokens: tuple[int, ...], stop_reason: str) -> None:
        """Take the bar away."""
        assert self._task is not None, "a request starts before it ends"
        self._bars.remove_task(self._task)


class TextDisplay(Observer):
    """Writes a text as it is decoded: piece by piece to a terminal, at the end anywhere else.

    Parameters
    ----------
    decode : callable
        Returns the text of a sequence of tokens.
    stream : text file
        Where to write.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], stream: TextIO) -> None:
        self._decode = decode
        self._stream = stream
        self._tokens: list[int] = []
        self._num_shown = 0

    @property
    def num_tokens(self) -> int:
        """Tokens of the text so far."""
        return len(self._tokens)

    def on_start(self, request: Request, prefill: Prefill) -> None:
        """Show the target's first token."""
        self._push((prefill.first_token,))

    def on_cycle(self, record: CycleRecord) -> None:
        """Show what a cycle committed."""
        self._push(record.outcome.committed)

    def on_end(self, tokens: tuple[int, ...], stop_reason: str) -> None:
        """Show the rest of the text."""
        self.end()

    def end(self) -> None:
        """Write what has been held back, and a line break."""
        self._show(self._decode(self._tokens))
        self._stream.write("\n")
        self._stream.flush()

    def _push(self, tokens: Sequence[int]) -> None:
        self._tokens.extend(tokens)
        if self._stream.isatty():
            self._show(self._decode(self._tokens).rstrip(UNFINISHED))

    def _show(self, text: str) -> None:
        self._stream.write(text[self._num_shown :])
        self._stream.flush()
        self._num_shown = max(self._num_shown, len(text))
