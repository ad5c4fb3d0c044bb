"""Checks a trace in full, saves the good part of a damaged one, and strips a run's decisions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from specfit.core.errors import TraceFormatError
from specfit.sim.trace.reader import RecordedPrompt, TraceReader
from specfit.sim.trace.rows import CycleRow, Row
from specfit.sim.trace.writer import TraceWriter


@dataclass(frozen=True)
class TraceReport:
    """What a check of a trace found.

    Parameters
    ----------
    folder : Path
        The trace.
    good_prompts : tuple of int
        Prompts whose every row can be read.
    num_expected : int, optional
        Prompts that were recorded, where the trace is finished and says so.
    problems : tuple of str
        What is missing or damaged, in words.
    """

    folder: Path
    good_prompts: tuple[int, ...]
    num_expected: int | None
    problems: tuple[str, ...]

    @property
    def is_good(self) -> bool:
        """Whether the trace is complete and undamaged."""
        return not self.problems

    @property
    def num_good(self) -> int:
        """Prompts that can be saved."""
        return len(self.good_prompts)


def check_trace(folder: Path) -> TraceReport:
    """Read everything in a trace and report what is good and what is not.

    Raises
    ------
    TraceFormatError
        Nothing can be saved: `metadata.json` cannot be read.
    """
    trace = TraceReader(folder)
    good, problems = _read_all(trace)
    indices = tuple(prompt.index for prompt in good)
    return TraceReport(folder, indices, trace.metadata.num_prompts, (*_missing(trace), *problems))


def repair_trace(folder: Path, out: Path) -> TraceReport:
    """Write the good prompts of a trace to a new one, numbered anew, and report what was lost.

    Raises
    ------
    TraceFormatError
        Nothing can be saved.
    TraceWriteError
        `out` exists or cannot be written.
    """
    trace = TraceReader(folder)
    report = check_trace(folder)
    good, _ = _read_all(trace)
    _copy(trace, good, out, lambda row: row)
    return report


def strip_decisions(folder: Path, out: Path) -> None:
    """Copy a run trace without what the policy and the cache decided.

    Selections, accepted paths, committed tokens, predictions and cache counts are gone; the drafted
    trees and the target's answers stay. A replay of the copy has to decide by itself.

    Raises
    ------
    TraceFormatError
        The trace is damaged or no run trace.
    """
    trace = TraceReader(folder)
    if trace.kind != "run":
        raise TraceFormatError(f"{folder} must be a run trace; it is one of {trace.kind}.")
    _copy(trace, trace.prompts(), out, _without_decisions)


def _without_decisions(row: Row) -> Row:
    return replace(row, decisions=None) if isinstance(row, CycleRow) else row


def _copy(
    trace: TraceReader,
    prompts: Iterable[RecordedPrompt],
    out: Path,
    change: Callable[[Row], Row],
) -> None:
    with TraceWriter.create(out, trace.metadata.finished(None)) as writer:
        for prompt in prompts:
            index = writer.next_prompt
            for row in prompt.rows():
                writer.add(replace(change(row), prompt=index))
            writer.end_prompt(replace(prompt.row, index=index))


def _missing(trace: TraceReader) -> list[str]:
    try:
        return trace.missing
    except TraceFormatError:
        return []  # the footer that cannot be read is among the problems found


def _read_all(trace: TraceReader) -> tuple[list[RecordedPrompt], list[str]]:
    """Return the prompts that can be read in full, and what is wrong with the others."""
    good: list[RecordedPrompt] = []
    problems: list[str] = []
    for part in trace.parts:
        try:
            prompts = list(trace.part_prompts(part))
        except TraceFormatError as error:
            problems.append(str(error))
            continue
        for prompt in prompts:
            try:
                for _ in prompt.rows():
                    pass
            except TraceFormatError as error:
                problems.append(str(error))
            else:
                good.append(prompt)
    return good, problems
