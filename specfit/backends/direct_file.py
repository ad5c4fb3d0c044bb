"""Files read and written past the page cache, straight from and to where bytes are wanted.

Reads and writes that lie on the grid of `ALIGNMENT`, in the file and in memory, go there without a
copy; any other read goes through a buffer of the reading thread, any other write through the page
cache. A file system that refuses direct I/O is read through the page cache, and `DirectFile.io`
says so.
"""

from __future__ import annotations

import errno
import mmap
import os
import threading
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import torch
from torch import Tensor

from specfit.core.errors import CheckpointError, InvalidInputError

ALIGNMENT = 4096
"""Bytes: offsets, sizes and addresses of direct reads are multiples; every disk takes these."""

WRITE_BYTES = 2**24
NUM_WRITERS = 4
"""How a large file is written: in parts of so many bytes, so many at once."""

DIRECT = "direct"
REFUSED = "BUFFERED: the file system refuses direct I/O"


class DirectFile:
    """A file open for reading by any number of threads.

    Parameters
    ----------
    path : Path
        The file.

    Raises
    ------
    CheckpointError
        It cannot be opened.
    InvalidInputError
        The system cannot read at a position.

    Attributes
    ----------
    io : str
        ``"direct"``, or that reads are buffered and why.
    """

    def __init__(self, path: Path) -> None:
        if not hasattr(os, "preadv"):
            raise InvalidInputError(
                "experts on disk need os.preadv, which this system lacks. Use device='cpu'."
            )
        self.path = path
        self._buffers = threading.local()
        try:
            self._file, self.io = _open(path)
        except OSError as error:
            raise CheckpointError(
                f"cannot read {path}: {error.strerror}. Pack it again."
            ) from error
        self._close = weakref.finalize(self, os.close, self._file)

    @property
    def num_bytes(self) -> int:
        """Bytes of the file."""
        return os.fstat(self._file).st_size

    def read(self, offset: int, target: Tensor) -> None:
        """Fill a tensor with the bytes from `offset` on.

        Parameters
        ----------
        target : uint8 Tensor [n]
            Contiguous, in host memory.

        Raises
        ------
        EOFError
            The file ends before.
        OSError
            The disk fails.
        """
        size, view = len(target), memoryview(target.numpy())
        if self.io != DIRECT or (offset | size | target.data_ptr()) % ALIGNMENT == 0:
            self._fill(offset, view, size)
            return
        lead = offset % ALIGNMENT
        span = -(-(lead + size) // ALIGNMENT) * ALIGNMENT
        buffer = self._buffer(span)
        self._fill(offset - lead, buffer[:span], lead + size)
        view[:] = buffer[lead : lead + size]

    def close(self) -> None:
        """Close the file; harmless when called twice."""
        self._close()

    def _fill(self, offset: int, view: memoryview, needed: int) -> None:
        """Read until `needed` bytes of the view are there."""
        done = 0
        while done < needed:
            count = os.preadv(self._file, [view[done:]], offset + done)
            done += count
            is_end = count == 0 or (self.io == DIRECT and count % ALIGNMENT)
            if is_end and done < needed:
                raise EOFError(
                    f"{self.path} ends at byte {offset + done}, but a copy needs it up to byte "
                    f"{offset + needed}; it must be packed again"
                )

    def _buffer(self, size: int) -> memoryview:
        """Return memory on the grid that is this thread's own."""
        known: memoryview | None = getattr(self._buffers, "view", None)
        if known is None or len(known) < size:
            known = self._buffers.view = memoryview(mmap.mmap(-1, size))
        return known


class DirectWriter:
    """A file that any number of threads write to, at any place; a context manager.

    What it held before stays where nothing is written. At the end everything is on disk, and the
    system holds none of it in memory.

    Parameters
    ----------
    path : Path
        The file; made if need be.
    num_bytes : int, optional
        Its size, for which room is made at once; without it the file grows.

    Raises
    ------
    OSError
        The disk has no room, or fails.
    """

    def __init__(self, path: Path, num_bytes: int | None = None) -> None:
        self._cached = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
        self._direct: int | None = None
        try:
            if num_bytes and hasattr(os, "posix_fallocate"):
                os.posix_fallocate(self._cached, 0, num_bytes)
            if num_bytes is not None:
                os.ftruncate(self._cached, num_bytes)
            self._direct = _open_to_write(path)
        except OSError:
            os.close(self._cached)
            raise

    def write(self, offset: int, source: Tensor) -> None:
        """Write bytes, uint8[n] contiguous in host memory, from `offset` on."""
        on_grid = (offset | len(source) | source.data_ptr()) % ALIGNMENT == 0
        file = self._direct if on_grid and self._direct is not None else self._cached
        view, done = memoryview(source.numpy()), 0
        while done < len(view):
            done += os.pwrite(file, view[done:], offset + done)

    def flush(self) -> None:
        """Return when everything written so far is on disk."""
        os.fsync(self._cached)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.flush()
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(self._cached, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(self._cached)
            if self._direct is not None:
                os.close(self._direct)


def aligned_bytes(num_bytes: int) -> Tensor:
    """Return uninitialised host memory on the grid, uint8[num_bytes]."""
    memory = torch.empty(num_bytes + ALIGNMENT, dtype=torch.uint8)
    first = -memory.data_ptr() % ALIGNMENT
    return memory[first : first + num_bytes]


def aligned(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Return uninitialised host memory on the grid."""
    size = torch.Size(shape)
    return aligned_bytes(size.numel() * dtype.itemsize).view(dtype).view(size)


def _open(path: Path) -> tuple[int, str]:
    """Return the descriptor, and how it reads: opened directly where a direct read works."""
    direct = getattr(os, "O_DIRECT", None)
    if direct is not None:
        try:
            return _opened_directly(path, direct), DIRECT
        except OSError as error:
            if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
                raise
    return os.open(path, os.O_RDONLY), REFUSED


def _open_to_write(path: Path) -> int | None:
    """Return a descriptor that writes past the page cache; None where the system has none."""
    direct = getattr(os, "O_DIRECT", None)
    if direct is None:
        return None
    try:
        return os.open(path, os.O_WRONLY | direct)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP):
            raise
        return None


def _opened_directly(path: Path, flag: int) -> int:
    file = os.open(path, os.O_RDONLY | flag)
    try:
        os.preadv(file, [memoryview(mmap.mmap(-1, ALIGNMENT))], 0)
    except OSError:
        os.close(file)
        raise
    return file
