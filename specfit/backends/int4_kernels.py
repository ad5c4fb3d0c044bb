"""torch's own products of numbers with 4-bit codes, on a CPU and on a GPU, under one interface.

Each wants the codes in an order of its own, which depends on the instruction set too; the bytes are
made once, when experts are packed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from specfit.core.errors import InvalidInputError


class Int4Kernel(ABC):
    """One kernel."""

    name: str
    """Of the order of its codes: what was packed for one name is of no use to another."""
    row_multiple: int
    """Output rows come in multiples of it."""

    @abstractmethod
    def pack(self, codes: Tensor) -> Tensor:
        """Return codes [R, C] in the kernel's order, uint8[R * C / 2]."""

    @abstractmethod
    def view(self, packed: Tensor, rows: int, columns: int) -> Tensor:
        """Return packed bytes in the shape that `multiply` wants, without copying."""

    @abstractmethod
    def multiply(self, x: Tensor, packed: Tensor, group_size: int, scales: Tensor) -> Tensor:
        """Return x [n, C] times the transposed matrix, [n, R].

        Parameters
        ----------
        packed : Tensor
            As `view` gives it.
        scales : Tensor [G, R, 2]
            Scale and zero of each group, in the type of `x`.
        """


class CpuInt4Kernel(Int4Kernel):
    """The kernel of a CPU; its order depends on the vector instructions that torch uses."""

    row_multiple = 16

    def __init__(self) -> None:
        self.name = f"cpu-{torch.backends.cpu.get_cpu_capability().lower()}"

    def pack(self, codes: Tensor) -> Tensor:
        """See `Int4Kernel.pack`."""
        packed = torch.ops.aten._convert_weight_to_int4pack_for_cpu(codes.int(), 1)
        return packed.view(-1)

    def view(self, packed: Tensor, rows: int, columns: int) -> Tensor:
        """See `Int4Kernel.view`."""
        return packed.view(rows, columns // 2)

    def multiply(self, x: Tensor, packed: Tensor, group_size: int, scales: Tensor) -> Tensor:
        """See `Int4Kernel.multiply`."""
        product: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(x, packed, group_size, scales)
        return product


class CudaInt4Kernel(Int4Kernel):
    """The kernel of a GPU, for bfloat16 alone; no run of it is on record.

    Parameters
    ----------
    device : torch.device
        Where codes are put in order.
    """

    row_multiple = 8

    def __init__(self, device: torch.device) -> None:
        self.name = "cuda"
        self._device = device

    def pack(self, codes: Tensor) -> Tensor:
        """See `Int4Kernel.pack`."""
        pairs = codes[:, ::2] << 4 | codes[:, 1::2]
        packed = torch.ops.aten._convert_weight_to_int4pack(
            pairs.to(self._device), _tiles(codes.shape[1])
        )
        return packed.cpu().view(-1).view(torch.uint8)

    def view(self, packed: Tensor, rows: int, columns: int) -> Tensor:
        """See `Int4Kernel.view`."""
        tiles = _tiles(columns)
        return packed.view(torch.int32).view(rows // 8, columns // (16 * tiles), 32, tiles // 2)

    def multiply(self, x: Tensor, packed: Tensor, group_size: int, scales: Tensor) -> Tensor:
        """See `Int4Kernel.multiply`."""
        product: Tensor = torch.ops.aten._weight_int4pack_mm(x, packed, group_size, scales)
        return product


def make_kernel(device: torch.device, dtype: torch.dtype) -> Int4Kernel:
    """Return the kernel for products in a type on a device.

    Raises
    ------
    InvalidInputError
        There is none.
    """
    if device.type == "cpu":
        return CpuInt4Kernel()
    if dtype != torch.bfloat16:
        raise InvalidInputError(
            f"torch multiplies 4-bit codes in bfloat16 on a GPU; got "
            f"{str(dtype).removeprefix('torch.')}. Use dtype='bfloat16' (--dtype bfloat16)."
        )
    return CudaInt4Kernel(device)


def _tiles(columns: int) -> int:
    """Return the tiles of 16 columns that the GPU's order takes together: 8, 4 or 2."""
    return next(tiles for tiles in (8, 4, 2) if columns % (16 * tiles) == 0)
