"""Writes a trace: rows stream to the open part, and a part is published when a prompt ends.

A recording that is killed loses at most the open part.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from specfit.core.errors import TraceFormatError, TraceWriteError
from specfit.sim.trace.encode import encode_prompt, encode_row
from specfit.sim.trace.metadata import TraceMetadata
from specfit.sim.trace.parts import open_name, publish
from specfit.sim.trace.rows import PromptRow, Row
from specfit.sim.trace.schema import PROMPTS, ROW_TABLES, row_schema

PART_BYTES = 2**18
"""A part is published when a prompt ends and it holds so many bytes of routing and states."""

ROW_GROUP_BYTES = 2**23
"""A row group is flushed when it holds so many bytes of routing and states."""


class TraceWriter:
    """Writes one trace; a context manager.

    Rows are added prompt by prompt: `add` for each cycle or position, then `end_prompt`. Make it
    with `create`. Where the ``with`` block is left by an error, the finished prompts stay and the
    trace is left marked as unfinished; without a finished prompt the folder is removed again.
    """

    def __init__(self, folder: Path, metadata: TraceMetadata, part_bytes: int) -> None:
        self.folder = folder
        self.metadata = metadata
        self._part_bytes = part_bytes
        self._table = ROW_TABLES[metadata.kind][0]
        self._schema = row_schema(metadata.kind, with_states=metadata.state_width > 0)
        self._part = 0
        self._prompt = 0
        self._num_rows = 0  # rows of the open prompt
        self._flushed_rows = 0  # rows of the open part that are in its file
        self._buffer: list[dict[str, Any]] = []
        self._buffer_bytes = 0
        self._open_bytes = 0  # of the open part
        self._prompts: list[dict[str, Any]] = []
        self._file: pq.ParquetWriter | None = None

    @classmethod
    def create(
        cls, folder: Path, metadata: TraceMetadata, *, part_bytes: int = PART_BYTES
    ) -> TraceWriter:
        """Start a trace in a folder that does not exist yet.

        Raises
        ------
        TraceWriteError
            The folder exists, or the disk does not take it.
        """
        if folder.exists():
            raise TraceWriteError(f"{folder} exists already. Choose another path or remove it.")
        with _writing(folder):
            folder.mkdir(parents=True)
            metadata.write(folder)
        return cls(folder, metadata, part_bytes)

    @property
    def next_prompt(self) -> int:
        """Index of the prompt that is open or comes next."""
        return self._prompt

    def add(self, row: Row) -> None:
        """Add a cycle or a position of the open prompt."""
        if row.prompt != self._prompt:
            raise TraceFormatError(
                f"rows of prompt {self._prompt} come next; got one of prompt {row.prompt}."
            )
        encoded = encode_row(row, self.metadata)
        self._buffer.append(encoded)
        self._buffer_bytes += len(encoded["routing"])
        if self.metadata.state_width:
            self._buffer_bytes += encoded["states"].nbytes
        self._num_rows += 1
        if self._buffer_bytes >= ROW_GROUP_BYTES:
            self._flush()

    def end_prompt(self, prompt: PromptRow) -> None:
        """Add the prompt whose rows have been added, and publish the part if it is large enough."""
        if prompt.index != self._prompt:
            raise TraceFormatError(f"prompt {self._prompt} comes next; got prompt {prompt.index}.")
        self._flush()
        first_row = self._flushed_rows - self._num_rows
        encoded = encode_prompt(prompt, first_row, self._num_rows, self.metadata.geometry)
        self._prompts.append(encoded)
        self._open_bytes += len(encoded["routing"])
        self._prompt += 1
        self._num_rows = 0
        if self._open_bytes >= self._part_bytes:
            self._publish()

    def abandon_prompt(self) -> None:
        """Drop the open prompt, whose request was cancelled; no prompt refers to its rows."""
        self._buffer, self._buffer_bytes = [], 0
        self._num_rows = 0

    def close(self) -> None:
        """Publish what is complete, drop the open prompt, and mark the trace as finished."""
        self.abandon_prompt()
        if self._prompts:
            self._publish()
        with _writing(self.folder):
            self.metadata.finished(self._prompt).write(self.folder)

    def __enter__(self) -> TraceWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        elif not isinstance(error, TraceWriteError):
            self._keep_finished_prompts()
        elif self._file is not None:
            self._abandon(self._file)

    def _flush(self) -> None:
        if not self._buffer:
            return
        with _writing(self.folder):
            if self._file is None:
                self._file = _parquet(
                    self.folder / open_name(self._table, self._part), self._schema
                )
            self._file.write_table(pa.Table.from_pylist(self._buffer, self._schema))
        self._open_bytes += self._buffer_bytes
        self._flushed_rows += len(self._buffer)
        self._buffer, self._buffer_bytes = [], 0

    def _publish(self) -> None:
        rows_path = self.folder / open_name(self._table, self._part)
        prompts_path = self.folder / open_name("prompts", self._part)
        with _writing(self.folder):
            if self._file is None:
                self._file = _parquet(rows_path, self._schema)
            self._file.close()
            self._file = None
            with _parquet(prompts_path, PROMPTS) as file:
                file.write_table(pa.Table.from_pylist(self._prompts, PROMPTS))
            publish(rows_path, self._table, self._part)
            publish(prompts_path, "prompts", self._part)
        self._part += 1
        self._open_bytes = self._flushed_rows = 0
        self._prompts = []

    def _keep_finished_prompts(self) -> None:
        """Publish the prompts that came to their end; the trace stays marked as unfinished."""
        self.abandon_prompt()
        if self._prompts:
            with suppress(TraceWriteError):  # the error that ends the recording is on its way
                self._publish()
        elif self._file is not None:
            self._abandon(self._file)
        if self._prompt == 0:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _abandon(self, file: pq.ParquetWriter) -> None:
        """Close the open file, which stays under its open name, as after a kill."""
        try:
            file.close()
        except (pa.ArrowException, OSError):
            return  # the error that ends the recording is already on its way


def _parquet(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        path,
        schema,
        # Both hardly shrink, and unpacking them would take most of the time of a replay.
        compression={n: "none" if n in ("routing", "states") else "lz4" for n in schema.names},
        use_dictionary=False,
        write_statistics=False,
        write_page_checksum=True,
        store_schema=False,
    )


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        raise TraceWriteError(
            f"cannot write the trace {folder}: {error}. The parts published so far remain readable."
        ) from error
