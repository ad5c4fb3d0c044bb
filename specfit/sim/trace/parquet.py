"""Parquet files that nobody vouches for: sizes are checked first, failures are of one type."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from specfit.core.errors import TraceFormatError
from specfit.sim.trace.pages import check_pages
from specfit.sim.trace.parts import PartFile

MAX_ROW_GROUP_BYTES = 2**29
MAX_FOOTER_ITEMS = 2**20

_T = TypeVar("_T")


def open_parquet(file: PartFile) -> pq.ParquetFile:
    """Open a file whose row groups claim reasonable sizes."""

    def open_file() -> pq.ParquetFile:
        return pq.ParquetFile(
            file.path,
            page_checksum_verification=True,
            thrift_string_size_limit=MAX_FOOTER_ITEMS,
            thrift_container_size_limit=MAX_FOOTER_ITEMS,
        )

    opened = reading(file, None, open_file)
    for group in range(opened.num_row_groups):
        size = opened.metadata.row_group(group).total_byte_size
        if not 0 <= size <= MAX_ROW_GROUP_BYTES:
            raise TraceFormatError(
                f"{file.path}, row group {group}: at most {MAX_ROW_GROUP_BYTES} bytes are allowed; "
                f"it declares {size}."
            )
    return opened


def read_group(file: PartFile, opened: pq.ParquetFile, group: int) -> pa.Table:
    """Return the rows of a row group, after a look at what its pages claim to hold."""

    def read() -> pa.Table:
        described = opened.metadata.row_group(group)
        with file.path.open("rb") as raw:
            for number in range(described.num_columns):
                column = described.column(number)
                offsets = (column.dictionary_page_offset, column.data_page_offset)
                start = min(offset for offset in offsets if offset is not None)
                check_pages(raw, start, column.total_compressed_size)
        return opened.read_row_group(group, use_threads=False)

    return reading(file, group, read)


def read_footer(file: PartFile) -> pq.FileMetaData:
    """Return the footer of a file."""
    return reading(file, None, lambda: pq.read_metadata(file.path))


def reading(file: PartFile, group: int | None, read: Callable[[], _T]) -> _T:
    """Return what `read` returns; a failure is an error that names the file and the row group."""
    where = f"{file.path}" if group is None else f"{file.path}, row group {group}"
    try:
        return read()
    except TraceFormatError as error:
        raise TraceFormatError(f"{where}: {error}") from error
    except (pa.ArrowException, OSError, ValueError, OverflowError, MemoryError) as error:
        raise TraceFormatError(f"{where} cannot be read: {error}.") from error
