"""What `specfit watch` shows: the text with its accepted tokens marked, bars, and two speeds.

Knows how the state of a run becomes lines; nothing of models and options.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from specfit.cli.textstream import UNFINISHED
from specfit.core.backend import Prefill, Request
from specfit.core.decode import CycleRecord, Observer
from specfit.sim.plain_estimate import PlainEstimate

if TYPE_CHECKING:
    from rich.text import Text

ACCEPTED = "bold green"
PARTS = (
    ("stall", "yellow", "▓", ("stall_s",)),
    ("compute", "blue", "█", ("compute_s",)),
    ("other", "magenta", "▒", ("draft_s", "select_s", "commit_s")),
)
"""Parts of a cycle's time: name, colour, the character of its bar, fields of `Timings`."""

LARGEST_BAR = 40


class Run(Observer):
    """The state of a run that is watched.

    Parameters
    ----------
    decode : callable
        Returns the text of some tokens.
    plain : PlainEstimate
        Told of the same cycles.

    Attributes
    ----------
    pieces : list of (str, bool)
        The text so far in pieces, and whether each was drafted and accepted.
    num_cycles, num_committed : int
        Cycles, and the tokens that they committed.
    seconds : dict of str to float
        By part, see `PARTS`.
    last : CycleRecord, optional
        The newest cycle.
    """

    def __init__(self, decode: Callable[[Sequence[int]], str], plain: PlainEstimate) -> None:
        self._decode = decode
        self.plain = plain
        self._tokens: list[int] = []
        self._num_shown = 0
        self.pieces: list[tuple[str, bool]] = []
        self.num_cycles = self.num_committed = 0
        self.seconds = {name: 0.0 for name, *_ in PARTS}
        self.last: CycleRecord | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens of the text so far."""
        return len(self._tokens)

    @property
    def tokens_per_s(self) -> float:
        """Committed tokens over the seconds of the cycles; NaN before the first."""
        spent = sum(self.seconds.values())
        return self.num_committed / spent if spent else math.nan

    def on_start(self, request: Request, prefill: Prefill) -> None:
        """Begin with the target's first token."""
        self.plain.on_start(request, prefill)
        self._push(prefill.first_token, is_accepted=False)

    def on_cycle(self, record: CycleRecord) -> None:
        """Take what a cycle committed: the accepted tokens, then the target's own."""
        self.plain.on_cycle(record)
        self.last = record
        self.num_cycles += 1
        self.num_committed += record.num_committed
        for name, _, _, fields in PARTS:
            self.seconds[name] += sum(getattr(record.timings, field) for field in fields)
        for place, token in enumerate(record.outcome.committed):
            self._push(token, is_accepted=place < len(record.outcome.accepted))

    def _push(self, token: int, *, is_accepted: bool) -> None:
        self._tokens.append(token)
        whole = self._decode(self._tokens).rstrip(UNFINISHED)
        self.pieces.append((whole[self._num_shown :], is_accepted))
        self._num_shown = max(self._num_shown, len(whole))


def panel(run: Run, title: str, *, columns: int, lines: int) -> Text:
    """Return the panel, at most `columns` wide and `lines` high, the end of the text in it."""
    from rich.text import Text

    foot = [_tree_line(run, columns), _time_line(run, columns), *_speed_lines(run, columns)]
    head = Text(_cut(title, columns), style="dim")
    body = _wrapped(run.pieces, columns)[-max(1, lines - len(foot) - 3) :]
    return Text("\n").join([head, *body, Text(""), *foot])


def log_line(run: Run) -> str:
    """Return what to log of a run so far where there is no terminal."""
    assert run.last is not None, "a line tells of a cycle"
    outcome = run.last.outcome
    return (
        f"cycle {run.num_cycles}: {run.num_tokens} tokens; last {len(outcome.cycle.tree)} drafted, "
        f"{len(outcome.selection)} verified, {len(outcome.accepted)} accepted, "
        f"{outcome.verification.num_copied} copied; {_shares(run)}; {_speeds(run)}"
    )


def _tree_line(run: Run, columns: int) -> Text:
    from rich.text import Text

    if run.last is None:
        return Text("tree   no cycle yet", style="dim")
    outcome = run.last.outcome
    drafted, chosen = len(outcome.cycle.tree), len(outcome.selection)
    said = f"{chosen} of {drafted} verified, {len(outcome.accepted)} accepted"
    width = min(drafted, _bar_width(columns, said))
    accepted = round(width * (len(outcome.accepted) + 1) / drafted)
    verified = max(round(width * chosen / drafted) - accepted, 0)
    line = Text("tree   ")
    line.append("█" * accepted, style="green").append("▓" * verified, style="blue")
    line.append("░" * max(width - accepted - verified, 0), style="dim")
    return _fit(line.append(f" {said}" if width else said), columns)


def _time_line(run: Run, columns: int) -> Text:
    from rich.text import Text

    said, total = _shares(run), sum(run.seconds.values())
    width = _bar_width(columns, said) if total else 0
    line = Text("time   ")
    for name, color, mark, _ in PARTS:
        line.append(mark * round(width * run.seconds[name] / (total or 1.0)), style=color)
    return _fit(line.append(f" {said}" if width else said), columns)


def _speed_lines(run: Run, columns: int) -> list[Text]:
    from rich.text import Text

    ours, plain = run.tokens_per_s, run.plain.paced_tokens_per_s
    fastest = max((x for x in (ours, plain) if not math.isnan(x)), default=1.0)
    said = (("here   ", ours, "tokens/s", "green"), ("plain  ", plain, "tokens/s estimated", "dim"))
    lines = []
    for label, rate, unit, color in said:
        words = f"{_number(rate)} {unit}"
        width = _bar_width(columns, f"{_number(plain)} tokens/s estimated")
        width = 0 if math.isnan(rate) else round(width * rate / fastest)
        line = Text(label).append("█" * width, style=color)
        lines.append(_fit(line.append(f" {words}" if width else words), columns))
    return lines


def _shares(run: Run) -> str:
    total = sum(run.seconds.values())
    return ", ".join(f"{n} {s / total:.0%}" for n, s in run.seconds.items()) if total else ""


def _speeds(run: Run) -> str:
    ours, plain = _number(run.tokens_per_s), _number(run.plain.paced_tokens_per_s)
    return f"{ours} tokens/s, plain decoding {plain} estimated"


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1f}"


def _bar_width(columns: int, said: str) -> int:
    """Return how many characters of a bar fit before the words; none where it would say little."""
    room = columns - len("tree   ") - len(said) - 1
    return min(room, LARGEST_BAR) if room >= 6 else 0


def _wrapped(pieces: Sequence[tuple[str, bool]], columns: int) -> list[Text]:
    """Return the text's lines, broken at the terminal's width, accepted tokens marked."""
    from rich.text import Text

    lines = [Text()]
    for piece, is_accepted in pieces:
        for character in piece:
            if character == "\n" or lines[-1].cell_len >= columns - 1:
                lines.append(Text())
            if character != "\n":
                lines[-1].append(character, style=ACCEPTED if is_accepted else "")
    return lines


def _fit(line: Text, columns: int) -> Text:
    line.truncate(columns, overflow="ellipsis")
    return line


def _cut(text: str, columns: int) -> str:
    return text if len(text) <= columns else text[: columns - 1] + "…"
