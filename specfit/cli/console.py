"""What the program prints: results to stdout as a table or JSON lines, all else to stderr."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress, TaskID


def print_error(message: str) -> None:
    """Print an error as one line on stderr."""
    text = _escaped(" ".join(message.split()))
    _console(stderr=True).print(f"[bold red]error:[/bold red] {text}", soft_wrap=True)


def print_note(message: str) -> None:
    """Print a remark on stderr; never part of the result."""
    _console(stderr=True).print(_escaped(message), style="dim", soft_wrap=True)


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
        Whether all columns but the first hold numbers and so are set to the right.
    """
    from rich import box
    from rich.table import Table

    if title:
        print_text(title, style="bold")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for i, name in enumerate(header):
        table.add_column(
            _escaped(name), justify="right" if i and is_numeric else "left", overflow="fold"
        )
    for row in rows:
        table.add_row(*(_escaped(cell) for cell in row))
    _console().print(table)
    if note:
        print_text(note, style="dim")


@contextmanager
def progress() -> Iterator[Progress]:
    """Show progress bars on stderr while the block runs; only name the tasks without a terminal."""
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
            if not console.is_terminal:
                print_note(f"{description} ...")
            return super().add_task(description, *args, **fields)

    is_shown = console.is_terminal
    with NamedTasks(*columns, console=console, transient=True, disable=not is_shown) as bars:
        yield bars


def _console(*, stderr: bool = False) -> Console:
    """Return a console as wide as the terminal; as wide as it takes where there is none."""
    from rich.console import Console

    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=1000)


def _escaped(text: str) -> str:
    from rich.markup import escape

    return escape(text)
