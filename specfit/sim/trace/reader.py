"""Reads a trace part by part, row group by row group: memory does not grow with the trace."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from specfit.core.backend import Request
from specfit.core.errors import TraceCoverageError, TraceFormatError
from specfit.sim.trace.decode import RowTable, decode_prompts
from specfit.sim.trace.metadata import TraceMetadata
from specfit.sim.trace.parquet import open_parquet, read_footer, read_group, reading
from specfit.sim.trace.parts import OPEN_PREFIX, Part, PartFile, checksum_of, list_files
from specfit.sim.trace.rows import CycleRow, PositionRow, PromptRow, Row
from specfit.sim.trace.schema import ROW_TABLES


@dataclass(frozen=True, eq=False)
class RecordedPrompt:
    """A prompt of a trace; its rows are read when they are asked for, as often as they are.

    Parameters
    ----------
    row : PromptRow
        The prompt.
    part : Part
        Where its rows are.
    first_row, num_rows : int
        Which of the part's rows they are.
    """

    trace: TraceReader
    row: PromptRow
    part: Part
    first_row: int
    num_rows: int

    @property
    def index(self) -> int:
        """0 for the first prompt of the trace."""
        return self.row.index

    @property
    def request(self) -> Request:
        """What was asked for."""
        return self.row.request

    @property
    def text(self) -> tuple[int, ...]:
        """Committed tokens without the prompt."""
        return self.row.text

    @property
    def stop_reason(self) -> str:
        """Why the text ends."""
        return self.row.stop_reason

    def rows(self) -> Iterator[Row]:
        """Yield the cycles or positions of this prompt in order.

        Raises
        ------
        TraceFormatError
            The file is damaged; the message names it and the row group.
        """
        for group, first, table in self._tables():
            for number in range(len(table)):
                yield self._row(group, table, number, first + number)

    def cursor(self) -> Iterator[RowFinder]:
        """Yield, in order, what finds rows by position without decoding those in between."""
        for group, first, table in self._tables():
            yield RowFinder(self, group, first, table)

    def _tables(self) -> Iterator[tuple[int, int, RowTable]]:
        """Yield the prompt's rows by row group: the group, its first row's number, the rows."""
        number = 0
        for group, table in self.trace.part_tables(self.part, self.first_row, self.num_rows):
            yield group, number, table
            number += len(table)
        if number != self.num_rows:
            raise TraceFormatError(
                f"{self.part.rows.path} must hold {self.num_rows} rows of prompt {self.index}; "
                f"it holds {number}."
            )

    def _row(self, group: int, table: RowTable, number: int, place: int) -> Row:
        """Return a table's row, which must be row `place` of the prompt."""

        def read() -> Row:
            row = table.row(number)
            _check_place(row, self.row, place)
            return row

        return reading(self.part.rows, group, read)


@dataclass(frozen=True, eq=False)
class RowFinder:
    """The rows of a prompt that lie in one row group."""

    prompt: RecordedPrompt
    group: int
    first: int
    table: RowTable

    @property
    def last_position(self) -> int:
        """Position of the last row."""
        return int(self.table.positions[-1])

    def at(self, position: int) -> Row | None:
        """Return the row whose root is at `position`, or None if there is none."""
        number = int(np.searchsorted(self.table.positions, position))
        if number == len(self.table) or self.table.positions[number] != position:
            return None
        return self.prompt._row(self.group, self.table, number, self.first + number)


class TraceReader:
    """An existing trace.

    Opening it reads `metadata.json` and the names of the parts; each part's checksum is verified
    when its rows are first read.

    Raises
    ------
    TraceFormatError
        The folder is no trace, or two files claim to be the same part.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.metadata = TraceMetadata.read(folder)
        self._files, others = list_files(folder)
        self._open_files = [name for name in others if name.startswith(OPEN_PREFIX)]
        self._row_table = ROW_TABLES[self.metadata.kind][0]
        self._verified: set[Path] = set()
        self.parts, self._gaps = self._pair_files()

    @property
    def kind(self) -> str:
        """``"run"`` or ``"positions"``."""
        return self.metadata.kind

    @property
    def num_prompts(self) -> int:
        """Prompts that the complete parts hold, by their footers."""
        return sum(read_footer(part.prompts).num_rows for part in self.parts)

    @property
    def fingerprint(self) -> str:
        """Digest of the metadata and of every part's checksum: equal traces have equal ones."""
        names = [file.path.name for part in self.parts for file in (part.rows, part.prompts)]
        digest = hashlib.sha256("\n".join([repr(self.metadata), *names]).encode())
        return digest.hexdigest()[:32]

    @property
    def missing(self) -> list[str]:
        """What is not there, in words; empty if the trace is complete."""
        missing = list(self._gaps)
        expected = self.metadata.num_prompts
        if expected is None:
            lost = f" ({', '.join(self._open_files)})" if self._open_files else ""
            missing.append(
                f"the recording was not finished: prompts from {self.num_prompts} on are missing, "
                f"the open part is lost{lost}"
            )
        elif expected != self.num_prompts:
            missing.append(f"{expected} prompts were recorded, {self.num_prompts} are there")
        return missing

    def require_states(self) -> int:
        """Return the width of the drafter's hidden states in the rows.

        Raises
        ------
        TraceCoverageError
            The trace holds none.
        """
        if not self.metadata.state_width:
            raise TraceCoverageError(
                f"{self.folder} holds no hidden states of the drafter, which the predictor looks "
                f"at. Record with --states, or choose a predictor that does without."
            )
        return self.metadata.state_width

    def prompts(self) -> Iterator[RecordedPrompt]:
        """Yield the prompts in order.

        Raises
        ------
        TraceFormatError
            A part is missing or damaged.
        """
        if self._gaps:
            raise TraceFormatError(f"{self.folder}: {self._gaps[0]}. Run `specfit repair`.")
        number = 0
        for part in self.parts:
            for prompt in self.part_prompts(part):
                if prompt.index != number:
                    raise TraceFormatError(
                        f"{part.prompts.path}: prompt {number} must come next; got {prompt.index}."
                    )
                yield prompt
                number += 1
        if self.metadata.num_prompts not in (None, number):
            raise TraceFormatError(
                f"{self.folder}: {self.metadata.num_prompts} prompts were recorded, "
                f"{number} are there. Run `specfit repair`."
            )

    def prompt(self, index: int) -> RecordedPrompt:
        """Return one prompt."""
        for prompt in self.prompts():
            if prompt.index == index:
                return prompt
        raise TraceFormatError(
            f"{self.folder} has the prompts 0 to {self.num_prompts - 1}; got {index}."
        )

    def part_prompts(self, part: Part) -> Iterator[RecordedPrompt]:
        """Yield the prompts of one part."""
        file = self._open(part.prompts)
        for group in range(file.num_row_groups):
            table = read_group(part.prompts, file, group)
            for row, first_row, num_rows in reading(
                part.prompts, group, partial(self._decode_prompts, table)
            ):
                if self.kind == "positions" and num_rows != len(row.text) - 1:
                    raise TraceFormatError(
                        f"{part.prompts.path}: a text of {len(row.text)} tokens has a row for each "
                        f"but the last; got {num_rows}."
                    )
                yield RecordedPrompt(self, row, part, first_row, num_rows)

    def part_tables(self, part: Part, first: int, count: int) -> Iterator[tuple[int, RowTable]]:
        """Yield rows ``first`` to ``first + count - 1`` of a part, by row group."""
        file = self._open(part.rows)
        start = 0
        for group in range(file.num_row_groups):
            stop = start + file.metadata.row_group(group).num_rows
            low, high = max(first, start), min(first + count, stop)
            if low < high:
                table = read_group(part.rows, file, group)
                rows = table.slice(low - start, high - low)
                yield group, reading(part.rows, group, partial(RowTable, rows, self.metadata))
            start = stop

    def verify(self, file: PartFile) -> None:
        """Raise `TraceFormatError` unless the file's bytes have the checksum of its name."""
        if file.path in self._verified:
            return
        try:
            found = checksum_of(file.path)
        except OSError as error:
            raise TraceFormatError(f"{file.path} cannot be read: {error}.") from error
        if found != file.checksum:
            raise TraceFormatError(
                f"{file.path} has the checksum {found}, not that of its name: it is damaged. "
                f"Run `specfit repair` to save the other parts."
            )
        self._verified.add(file.path)

    def _open(self, file: PartFile) -> pq.ParquetFile:
        self.verify(file)
        return open_parquet(file)

    def _decode_prompts(self, table: pa.Table) -> list[tuple[PromptRow, int, int]]:
        return list(decode_prompts(table, self.metadata))

    def _pair_files(self) -> tuple[list[Part], list[str]]:
        found: dict[tuple[str, int], PartFile] = {}
        for file in self._files:
            if (file.table, file.number) in found:
                raise TraceFormatError(f"{file.path} and another file claim to be the same part.")
            found[file.table, file.number] = file
        numbers = sorted(number for table, number in found if table == "prompts")
        parts: list[Part] = []
        gaps: list[str] = []
        for number in range(numbers[-1] + 1 if numbers else 0):
            rows, prompts = found.get((self._row_table, number)), found.get(("prompts", number))
            if rows is None or prompts is None:
                gaps.append(f"part {number} is missing")
            else:
                parts.append(Part(number, rows, prompts))
            if len(gaps) > 1000:
                break
        return parts, gaps


def _check_place(row: Row, prompt: PromptRow, number: int) -> None:
    """Raise unless a row belongs where it stands in its prompt's text."""
    if row.prompt != prompt.index:
        raise TraceFormatError(f"a row of prompt {row.prompt} lies among those of {prompt.index}.")
    place = row.position - len(prompt.request.prompt)
    if not 0 <= place < len(prompt.text):
        raise TraceFormatError(f"position {row.position} lies outside the text.")
    tree = row.trie if isinstance(row, PositionRow) else row.tree
    if tree.tokens[0] != prompt.text[place]:
        raise TraceFormatError(
            f"the root at position {row.position} must be the text's token {prompt.text[place]}; "
            f"got {tree.tokens[0]}."
        )
    if isinstance(row, PositionRow) and place != number:
        raise TraceFormatError(f"position {row.position} is out of order.")
    if isinstance(row, CycleRow):
        _check_cycle(row, prompt, place, number)


def _check_cycle(row: CycleRow, prompt: PromptRow, place: int, number: int) -> None:
    if row.cycle != number:
        raise TraceFormatError(f"cycle {number} must come next; got {row.cycle}.")
    if row.decisions is not None:
        committed = tuple(row.decisions.committed.tolist())
        if committed != prompt.text[place + 1 : place + 1 + len(committed)] or not committed:
            raise TraceFormatError(f"cycle {number} must commit the tokens of the text.")
