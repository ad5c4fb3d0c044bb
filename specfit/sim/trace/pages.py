"""What the pages of a Parquet file claim to hold, read before anything is unpacked.

The footer's sizes are only claims: a small page may unpack to gigabytes. The page headers are what
the unpacking goes by, so they are what is checked. They are Thrift structs in compact encoding.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import BinaryIO

from specfit.core.errors import TraceFormatError

MAX_UNPACKED_BYTES = 2**29
"""Most bytes that the pages of one column of a row group may unpack to."""
MAX_VALUES = 2**26
"""Most values, nulls included, that they may hold."""
MAX_PAGES = 2**16
"""Most pages of one column of a row group."""

_WINDOW_BYTES = 4096
"""Longest header of a page; those of this format take some 40 bytes."""
_MAX_NESTING = 8

_TRUE, _FALSE, _BYTE, _I16, _I32, _I64, _DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = range(1, 13)

_Struct = dict[int, "int | _Struct | None"]


def check_pages(file: BinaryIO, start: int, size: int) -> None:
    """Raise unless the pages of a column chunk unpack to what memory may hold.

    Parameters
    ----------
    start, size : int
        Where the chunk lies in the file, in bytes.

    Raises
    ------
    TraceFormatError
        A header cannot be read, pages do not fill the chunk, or they claim too much.
    """
    unpacked = values = num_pages = 0
    at, end = start, start + size
    while at < end:
        num_pages += 1
        file.seek(at)
        window = _Window(file.read(min(_WINDOW_BYTES, end - at)))
        header = window.struct()
        page, packed = _size(header, 2), _size(header, 3)
        unpacked += page
        values += max(_num_values(header, key) for key in (5, 7, 8))
        if unpacked > MAX_UNPACKED_BYTES or values > MAX_VALUES or num_pages > MAX_PAGES:
            raise TraceFormatError(
                f"{num_pages} pages at byte {start} claim {unpacked} bytes and {values} values; at "
                f"most {MAX_PAGES}, {MAX_UNPACKED_BYTES} and {MAX_VALUES} are allowed."
            )
        at += window.at + packed
    if at != end:
        raise TraceFormatError(f"the pages at byte {start} end at byte {at}, not at {end}.")


def _size(header: _Struct, key: int) -> int:
    value = header.get(key)
    if not isinstance(value, int) or value < 0:
        raise TraceFormatError(f"a page header claims a size of {value}.")
    return value


def _num_values(header: _Struct, key: int) -> int:
    """Return the values of a data or dictionary page; 0 where the header describes none."""
    described = header.get(key)
    return _size(described, 1) if isinstance(described, dict) else 0


@dataclass
class _Window:
    """A reader of Thrift's compact encoding; what is not a number or a struct is skipped."""

    data: bytes
    at: int = 0

    def struct(self, nesting: int = 0) -> _Struct:
        if nesting > _MAX_NESTING:
            raise TraceFormatError("a page header is nested too deeply.")
        fields: _Struct = {}
        key = 0
        while (head := self._byte()) != 0:
            delta, kind = head >> 4, head & 15
            key = key + delta if delta else self._signed()
            fields[key] = self._value(kind, nesting)
        return fields

    def _value(self, kind: int, nesting: int) -> int | _Struct | None:
        if kind in (_TRUE, _FALSE):
            return int(kind == _TRUE)
        if kind in (_I16, _I32, _I64):
            return self._signed()
        if kind == _STRUCT:
            return self.struct(nesting + 1)
        if kind in (_LIST, _SET):
            self._skip_list(nesting)
        elif kind == _BYTE:
            self._skip(1)
        elif kind == _DOUBLE:
            self._skip(8)
        elif kind == _BINARY:
            self._skip(self._unsigned())
        else:
            raise TraceFormatError(f"a page header holds a value of unknown kind {kind}.")
        return None

    def _skip_list(self, nesting: int) -> None:
        head = self._byte()
        count, kind = head >> 4, head & 15
        for _ in range(self._unsigned() if count == 15 else count):
            if kind in (_TRUE, _FALSE):
                self._skip(1)
            else:
                self._value(kind, nesting)

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)

    def _unsigned(self) -> int:
        value = shift = 0
        while shift < 70:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        raise TraceFormatError("a page header holds a number of too many bytes.")

    def _byte(self) -> int:
        self._skip(1)
        return self.data[self.at - 1]

    def _skip(self, count: int) -> None:
        self.at += count
        if self.at > len(self.data):
            raise TraceFormatError("a page header goes beyond its column.")
