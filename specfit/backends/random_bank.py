"""Experts with random weights of a given shape, in memory or in a file, for forced decoding."""

from __future__ import annotations

import math
import shutil
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from specfit.backends import make_device
from specfit.backends.device import Device
from specfit.backends.direct_file import NUM_WRITERS, WRITE_BYTES, DirectWriter, aligned_bytes
from specfit.backends.file_bank import Bank, FileBank
from specfit.backends.forced import ForcedExperts
from specfit.backends.packed import check_room
from specfit.core.cache import ExpertCache
from specfit.core.errors import CheckpointError, InvalidInputError
from specfit.core.experts import ModelGeometry

MOST_NUMBERS = 2**25
"""Numbers that are drawn; a larger bank repeats them, a different part for each expert."""
SCALE = 0.02
Shape = tuple[int, int, int]


def draw(shape: Shape, dtype: torch.dtype) -> Tensor:
    """Return numbers to fill a bank with, over and over; no two experts get the same block."""
    count = min(MOST_NUMBERS, 4 * shape[2]) + 1  # one more, so that repeats are shifted
    generator = torch.Generator().manual_seed(1)
    return torch.randn(count, generator=generator).mul_(SCALE).to(dtype)


class RandomBlocks:
    """The experts that `write_bank` writes, in memory: ``blocks[layer][expert]`` is a block.

    Parameters
    ----------
    shape : tuple of int
        ``(L, E, 3 I D)``.
    dtype : torch.dtype
        Of the numbers.
    """

    def __init__(self, shape: Shape, dtype: torch.dtype) -> None:
        _, self._num_experts, self._block = shape
        source = draw(shape, dtype)
        self._period = len(source)
        self._numbers = source.repeat(1 + -(-self._block // self._period))

    def __getitem__(self, layer: int) -> list[Tensor]:
        first = layer * self._num_experts
        starts = [(first + i) * self._block % self._period for i in range(self._num_experts)]
        return [self._numbers[start : start + self._block] for start in starts]


def write_bank(path: Path, shape: Shape, dtype: torch.dtype) -> FileBank:
    """Write random experts [L, E, 3 I D] to a file that the system then forgets, and open it.

    Raises
    ------
    CheckpointError
        There is no room.
    """
    total = math.prod(shape) * dtype.itemsize
    free = shutil.disk_usage(path.parent).free
    if total > free:
        raise CheckpointError(
            f"random experts take {total / 2**30:.1f} GiB in {path.parent}, and {free / 2**30:.1f} "
            f"GiB are free. Name a folder on another disk."
        )
    source = draw(shape, dtype).view(torch.uint8)
    repeated = source.repeat(1 + -(-WRITE_BYTES // len(source)))
    with DirectWriter(path, total) as file, ThreadPoolExecutor(NUM_WRITERS) as pool:

        def write(first: int) -> None:
            part = aligned_bytes(min(WRITE_BYTES, total - first))
            begin = first % len(source)
            part.copy_(repeated[begin : begin + len(part)])
            file.write(first, part)

        deque(pool.map(write, range(0, total, WRITE_BYTES)), maxlen=0)
    return FileBank.open(path, shape, dtype)


def memory_bank(device: Device, shape: Shape, dtype: torch.dtype) -> Tensor:
    """Return random experts [L, E, 3 I D] in host memory.

    Raises
    ------
    CheckpointError
        There is no room.
    """
    check_room(math.prod(shape) * dtype.itemsize)
    bank = device.allocate_host(shape, dtype)
    flat, source = bank.view(-1), draw(shape, dtype)
    for first in range(0, len(flat), len(source)):
        part = flat[first : first + len(source)]
        part.copy_(source[: len(part)])
    return bank


class RandomMachine:
    """A device and random experts of a model's shape; makes what runs forced passes.

    Parameters
    ----------
    bank : Tensor or FileBank [L, E, 3 I D]
        The experts.
    device : Device
        Where they are computed.
    hidden_size : int
        Hidden size D.
    """

    def __init__(self, bank: Bank, device: Device, hidden_size: int) -> None:
        self.bank = bank
        self.device = device
        self.hidden_size = hidden_size

    @property
    def label(self) -> str:
        """What results must say of it."""
        link = self.device.describe_link()
        told = [str(link[key]) for key in ("what", "io") if key in link]
        return f"{self.device.name}, random weights ({', '.join(told)})"

    def passes(self, cache: ExpertCache) -> ForcedExperts:
        """Return what runs passes with a cache."""
        return ForcedExperts(self.bank, self.device, cache, self.hidden_size)


@contextmanager
def random_machine(name: str, geometry: ModelGeometry, folder: Path) -> Iterator[RandomMachine]:
    """Yield a machine for a geometry; what it wrote is removed afterwards.

    Parameters
    ----------
    name : str
        ``"cpu"``, ``"ssd"``, ``"cuda"`` or ``"cuda:1"``.
    folder : Path
        On the disk from which ``"ssd"`` reads.

    Raises
    ------
    InvalidInputError
        There is no such device, or an expert of this size cannot be gate, up and down.
    CheckpointError
        There is no room for the experts.
    """
    dtype, hidden_size, block = expert_shape(geometry.expert_bytes)
    shape = geometry.num_layers, geometry.num_experts, block
    device = make_device(name, None)
    with TemporaryDirectory(prefix="specfit-forced-", dir=folder) as temporary:
        try:
            if device.reads_files:
                bank: Bank = write_bank(Path(temporary) / "experts.bin", shape, dtype)
            else:
                bank = memory_bank(device, shape, dtype)
            yield RandomMachine(bank, device, hidden_size)
        finally:
            device.close()


def expert_shape(expert_bytes: int) -> tuple[torch.dtype, int, int]:
    """Return dtype, hidden size and numbers of an expert of this size: bfloat16, near square.

    A trace says how large an expert is, not how wide; bytes and operations are the same.
    """
    size, rest = divmod(expert_bytes, 3 * torch.bfloat16.itemsize)
    if rest:
        raise InvalidInputError(
            f"an expert must be three matrices of bfloat16; {expert_bytes} bytes are not. Give a "
            f"trace whose expert_bytes is a multiple of 6."
        )
    hidden_size = 1
    while hidden_size**2 < size and size % (2 * hidden_size) == 0:
        hidden_size *= 2
    return torch.bfloat16, hidden_size, 3 * size
