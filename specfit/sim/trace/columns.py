"""Arrow columns as numpy arrays, without a copy where Arrow allows it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray


@dataclass(frozen=True)
class ListColumn:
    """A column of lists: row ``i`` is ``values[offsets[i]:offsets[i + 1]]``.

    Parameters
    ----------
    offsets : int64[n + 1]
        Bounds of the rows.
    values : array
        All rows, one after the other.
    is_null : bool[n]
        Rows that hold no list.
    """

    offsets: NDArray[np.int64]
    values: NDArray[Any]
    is_null: NDArray[np.bool_]

    def __getitem__(self, row: int) -> NDArray[Any]:
        return self.values[self.offsets[row] : self.offsets[row + 1]]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Elements of each row, int64[n]."""
        return np.diff(self.offsets)


def list_column(column: pa.ChunkedArray) -> ListColumn:
    """Return a column of lists or of binary values; bytes are uint8."""
    array = _one_array(column)
    is_null = np.asarray(array.is_null().to_numpy(zero_copy_only=False), bool)
    if pa.types.is_binary(array.type):
        _, offset_buffer, data = array.buffers()
        offsets = np.frombuffer(offset_buffer, np.int32, count=len(array) + 1 + array.offset)
        values = np.frombuffer(data, np.uint8) if data else np.zeros(0, np.uint8)
        return ListColumn(offsets[array.offset :].astype(np.int64), values, is_null)
    offsets = array.offsets.to_numpy().astype(np.int64)
    return ListColumn(offsets, array.values.to_numpy(zero_copy_only=False), is_null)


def scalar_column(column: pa.ChunkedArray) -> NDArray[Any]:
    """Return a column of numbers, NaN where a float is absent; texts are objects."""
    result: NDArray[Any] = _one_array(column).to_numpy(zero_copy_only=False)
    return result


def has_nulls(column: pa.ChunkedArray) -> bool:
    """Return whether a value, or an element of a list, is absent."""
    if column.null_count:
        return True
    array = _one_array(column)
    return bool(pa.types.is_list(array.type) and array.values.null_count > 0)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    """Return the column in one piece; one that is in one piece is not copied."""
    if column.num_chunks == 1:
        return column.chunk(0)
    combined = column.combine_chunks()
    if isinstance(combined, pa.ChunkedArray):
        return combined.chunk(0) if combined.num_chunks else pa.array([], combined.type)
    return combined
