"""What the program prints: results to stdout as a table or JSON lines, all else to stderr."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console, JustifyMethod
    from rich.measure import Measurement
    from rich.progress import Progress, TaskID
    from rich.table import Table

WIDE = 1000
"""Columns where no terminal sets a limit."""


def print_error(message: str) -> None:
    """Print an error as one line on stderr."""
    text = _escaped(" ".join(message.split()))
    _console(stderr=True).print(f"[bold red]error:[/bold red] {text}", soft_wrap=True)


def print_note(message: str) -> None:
    """Print a remark on stderr; never part of the result."""
    _console(stderr=True).print(_escaped(message), style="dim", soft_wrap=True)


@contextmanager
def warnings_as_notes(category: type[Warning]) -> Iterator[None]:
    """Print warnings of a kind as remarks, each of them, when the block ends."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", category)
        yield
    for warning in caught:
        print_note(f"warning: {warning.message}")


def print_text(message: str, style: str = "") -> None:
    """Print a line of the result on stdout, broken at words where a terminal is too narrow."""
    _console().print(_escaped(message), style=style)


def print_json(rows: Iterable[Mapping[str, Any]]) -> None:
    """Print one JSON object a line on stdout."""
    for row in rows:
        sys.stdout.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
    sys.stdout.flush()


def print_table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    title: str = "",
    note: str = "",
    is_numeric: bool = True,
) -> None:
    """Print a table on stdout.

    Parameters
    ----------
    header : sequence of str
        Column names.
    rows : sequence of sequence of str
        Cells, as many in each row as there are columns.
    title, note : str
        Lines above and below the table.
    is_numeric : bool
        Whether all columns but the first hold numbers: they are set to the right, and where a
        terminal is too narrow, one below the other. Tables of texts, from three columns on, come
        a row below the other where it is too narrow for their words.
    """
    if title:
        print_text(title, style="bold")
    console, table = _console(), _table(header, rows, is_numeric=is_numeric)
    if is_numeric and _widths_of(table).maximum > console.width:
        for i, name in enumerate(header[1:], 1):
            print_text(name, style="bold")
            console.print(_table(["", ""], [(row[0], row[i]) for row in rows], is_numeric=True))
    elif len(header) > 2 and _widths_of(table).minimum > console.width:
        for first, *others in rows:
            print_text(first, style="bold")
            named = zip(header[1:], others, strict=True)
            print_text("\n".join(f"{name}: {cell}" for name, cell in named if cell))
    else:
        console.print(table)
    if note:
        print_text(note, style="dim")


def live_console() -> Console | None:
    """Return the console to draw on while something runs; None where stdout is no terminal."""
    console = _console()
    return console if console.is_terminal and not console.is_dumb_terminal else None


def is_narrow(columns: int) -> bool:
    """Return whether stdout is a terminal of fewer columns than this."""
    return _console().width < columns


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], *, is_numeric: bool) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_header=any(header))
    for i, name in enumerate(header):
        justify: JustifyMethod = "right" if i and is_numeric else "left"
        table.add_column(_escaped(name), justify=justify, overflow="fold")
    for row in rows:
        table.add_row(*(_escaped(cell) for cell in row))
    return table


def _widths_of(table: Table) -> Measurement:
    """Return the columns of a terminal that the table takes without breaking a cell, or a word."""
    from rich.console import Console

    return Console(width=WIDE).measure(table)


@contextmanager
def progress(*, is_named: bool = True) -> Iterator[Progress]:
    """Show progress bars on stderr while the block runs.

    Parameters
    ----------
    is_named : bool
        Whether to name the tasks, a line each, where stderr is no terminal.
    """
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    from rich.progress import TimeRemainingColumn as Remaining

    console = _console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        Remaining(compact=True),
    )

    class NamedTasks(Progress):
        def add_task(self, description: str, *args: Any, **fields: Any) -> TaskID:
            if is_named and not console.is_terminal:
                print_note(f"{description} ...")
            return super().add_task(description, *args, **fields)

    is_shown = console.is_terminal
    with NamedTasks(*columns, console=console, transient=True, disable=not is_shown) as bars:
        yield bars


def _console(*, stderr: bool = False) -> Console:
    """Return a console as wide as the terminal; as wide as it takes where there is none."""
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=WIDE)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
