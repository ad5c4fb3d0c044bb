"""A bank of experts that stays on disk: its blocks are sources of copies like those in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import torch
from torch import Tensor

from specfit.backends.direct_file import DirectFile
from specfit.core.errors import CheckpointError


@dataclass(frozen=True, eq=False)
class FileBlock:
    """Some numbers in a file.

    Parameters
    ----------
    file : DirectFile
        Where they are.
    offset : int
        Of their first byte.
    shape : torch.Size
        Of the tensor that they are.
    dtype : torch.dtype
        Of the numbers.
    """

    file: DirectFile
    offset: int
    shape: torch.Size
    dtype: torch.dtype

    @property
    def nbytes(self) -> int:
        """Bytes of the block."""
        return self.shape.numel() * self.dtype.itemsize

    def parts(self, destination: Tensor, part_bytes: int) -> Iterator[tuple[int, Tensor]]:
        """Yield offsets in the file and the bytes of `destination` that belong there.

        Raises
        ------
        ValueError
            The destination has another shape or type.
        """
        if (destination.shape, destination.dtype) != (self.shape, self.dtype):
            raise ValueError(
                f"a block of {list(self.shape)} {self.dtype} does not fit in "
                f"{list(destination.shape)} {destination.dtype}"
            )
        target = destination.view(-1).view(torch.uint8)
        for first in range(0, len(target), part_bytes):
            yield self.offset + first, target[first : first + part_bytes]


Source: TypeAlias = Tensor | FileBlock
"""Where a copy comes from."""


def deliver(source: Source, destination: Tensor) -> None:
    """Copy or read a source to where it is wanted, in the calling thread."""
    if isinstance(source, Tensor):
        destination.copy_(source)
        return
    for offset, part in source.parts(destination, max(1, source.nbytes)):
        source.file.read(offset, part)


def in_memory(source: Source) -> Tensor:
    """Return a source as a tensor in host memory, read if need be."""
    if isinstance(source, Tensor):
        return source
    read = torch.empty(source.shape, dtype=source.dtype)
    deliver(source, read)
    return read


@dataclass(frozen=True, eq=False)
class FileBank:
    """Every expert's block in a packed file; ``bank[layer][expert]`` is one, as in a tensor.

    Parameters
    ----------
    file : DirectFile
        The file.
    shape : torch.Size
        ``[L, E, B]``.
    dtype : torch.dtype
        Of the numbers.
    """

    file: DirectFile
    shape: torch.Size
    dtype: torch.dtype

    @classmethod
    def open(cls, path: Path, shape: tuple[int, int, int], dtype: torch.dtype) -> FileBank:
        """Return the bank of a packed file.

        Raises
        ------
        CheckpointError
            The file is missing or too short.
        """
        bank = cls(DirectFile(path), torch.Size(shape), dtype)
        needed = bank.shape.numel() * dtype.itemsize
        if bank.file.num_bytes < needed:
            raise CheckpointError(
                f"{path} must hold {needed} bytes; got {bank.file.num_bytes}. Pack it again."
            )
        return bank

    def __getitem__(self, layer: int) -> FileLayer:
        return FileLayer(self, layer)

    def __len__(self) -> int:
        return self.shape[0]


@dataclass(frozen=True, eq=False)
class FileLayer:
    """The blocks of one layer of a bank."""

    bank: FileBank
    layer: int

    def __getitem__(self, expert: int) -> FileBlock:
        num_layers, num_experts, size = self.bank.shape
        if not (0 <= self.layer < num_layers and 0 <= expert < num_experts):
            raise IndexError(f"no expert {expert} of layer {self.layer} in {self.bank.file.path}")
        number = self.layer * num_experts + expert
        offset = number * size * self.bank.dtype.itemsize
        return FileBlock(self.bank.file, offset, torch.Size((size,)), self.bank.dtype)


Bank: TypeAlias = Tensor | FileBank
"""Every expert's block [L, E, B], in memory or on disk."""
