"""Reading safetensors files tensor by tensor, straight to where the bytes are wanted.

A file is its header's length (8 bytes, little-endian), a JSON header and the tensors' bytes. What
is read is never mapped, so that a process holds what it keeps and no more than a tensor besides.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import torch
from torch import Tensor

from specfit.backends.threads import finish
from specfit.core.errors import CheckpointError

DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "I64": torch.int64,
    "I32": torch.int32,
    "I16": torch.int16,
    "I8": torch.int8,
    "U8": torch.uint8,
    "BOOL": torch.bool,
}
MOST_HEADER_BYTES = 100_000_000
PART_BYTES = 2**23
"""Of a large tensor, that one thread reads at a time."""


@dataclass(frozen=True)
class Entry:
    """A tensor of a file: its type, its shape, and its bytes' first place and number."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int
    num_bytes: int


class TensorFile:
    """An open safetensors file; a context manager.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    CheckpointError
        It is missing, no safetensors file, or its size is not what its header says.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        try:
            self._file: BinaryIO = path.open("rb", buffering=0)
        except OSError as error:
            raise _damaged(path, error) from error
        try:
            self.entries = self._read_header()
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            self._file.close()
            raise _damaged(path, error) from error

    def read_into(self, name: str, tensor: Tensor, pool: Executor | None = None) -> None:
        """Read a tensor into memory of its type and size, contiguous; any number of threads may.

        With a pool, whose threads must not call this, a large one is read by many at once.
        """
        entry = self.entries[name]
        assert tensor.is_contiguous() and tensor.nbytes == entry.num_bytes, "as in the header"
        if entry.num_bytes == 0:
            return
        target = memoryview(tensor.reshape(-1).view(torch.uint8).numpy())
        if pool is None:
            self._fill(name, entry.start, target)
            return
        parts = [
            pool.submit(self._fill, name, entry.start + first, target[first : first + PART_BYTES])
            for first in range(0, entry.num_bytes, PART_BYTES)
        ]
        finish(parts)

    def read(self, name: str, pool: Executor | None = None) -> Tensor:
        """Return a tensor; see `read_into` for the pool."""
        entry = self.entries[name]
        tensor = torch.empty(entry.shape, dtype=entry.dtype)
        self.read_into(name, tensor, pool)
        return tensor

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _fill(self, name: str, offset: int, target: memoryview) -> None:
        done = 0
        while done < len(target):
            count = self._read_at(offset + done, target[done:])
            if not count:
                raise CheckpointError(f"{self.path} ends within {name}. Fetch it again.")
            done += count

    def _read_at(self, offset: int, target: memoryview) -> int:
        if hasattr(os, "preadv"):
            return os.preadv(self._file.fileno(), [target], offset)
        with self._lock:
            self._file.seek(offset)
            return int(self._file.readinto(target))  # type: ignore[attr-defined]

    def _read_header(self) -> dict[str, Entry]:
        size = self.path.stat().st_size
        length = int.from_bytes(self._file.read(8), "little")
        if not 2 <= length <= min(size - 8, MOST_HEADER_BYTES):
            raise ValueError("it has no header")
        header = json.loads(self._file.read(length))
        header.pop("__metadata__", None)
        entries = {name: _entry(name, said, 8 + length) for name, said in header.items()}
        end = max((e.start + e.num_bytes for e in entries.values()), default=8 + length)
        if end != size:
            raise ValueError(f"it has {size} bytes, and its header says {end}")
        return dict(sorted(entries.items(), key=lambda item: item[1].start))


def read_tensors(files: tuple[Path, ...]) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor of some safetensors files, one at a time.

    Raises
    ------
    CheckpointError
        A file is missing, truncated, or no safetensors file.
    """
    for path in files:
        with TensorFile(path) as file:
            for name in file.entries:
                yield name, file.read(name)


def _damaged(path: Path, error: Exception) -> CheckpointError:
    return CheckpointError(
        f"{path} cannot be read: {error}. It is damaged or truncated; fetch it again."
    )


def _entry(name: str, said: dict[str, object], base: int) -> Entry:
    first, last = said["data_offsets"]
    shape = tuple(int(x) for x in said["shape"])
    kind = said["dtype"]
    if kind not in DTYPES:
        raise ValueError(f"{name} is of type {kind}, which is not supported")
    dtype = DTYPES[kind]
    count = torch.Size(shape).numel() * dtype.itemsize
    if first < 0 or last - first != count or min(shape, default=0) < 0:
        raise ValueError(f"{name} has {last - first} bytes, and its shape says {count}")
    return Entry(dtype, shape, base + first, count)
