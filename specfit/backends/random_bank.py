"""Experts with random weights of a given shape, in memory or in a file, for forced decoding."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor

from specfit.backends import make_device
from specfit.backends.device import Device
from specfit.backends.direct_file import NUM_WRITERS, WRITE_BYTES, DirectWriter, aligned_bytes
from specfit.backends.expert_layout import ExpertLayout
from specfit.backends.file_bank import Bank, FileBank
from specfit.backends.forced import ForcedExperts
from specfit.backends.layouts import layout_for
from specfit.backends.packed import check_room
from specfit.backends.tiers import HostBank, close_tiers, host_cache
from specfit.core.cache import ExpertCache
from specfit.core.errors import CheckpointError
from specfit.core.expert_format import ExpertFormat
from specfit.core.experts import ModelGeometry

MOST_NUMBERS = 2**25
"""Numbers that are drawn; a larger bank repeats them, a different part for each expert."""
SCALE = 0.02
Shape = tuple[int, int, int]


def draw(shape: Shape, dtype: torch.dtype) -> Tensor:
    """Return numbers to fill a bank with, over and over; no two experts get the same block.

    Bytes, as blocks of 4-bit codes have them, are those of bfloat16 numbers: any byte is two codes,
    and scales must be finite.
    """
    numbers = torch.bfloat16 if dtype == torch.uint8 else dtype
    count = min(MOST_NUMBERS, 4 * shape[2] * dtype.itemsize // numbers.itemsize)
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randn(count + 1, generator=generator)  # one more, so that repeats are shifted
    return drawn.mul_(SCALE).to(numbers).view(dtype)


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


def write_bank(
    path: Path,
    shape: Shape,
    dtype: torch.dtype,
    progress: Callable[[int], None] = lambda num_bytes: None,
) -> FileBank:
    """Write random experts [L, E, 3 I D] to a file that the system then forgets, and open it.

    Parameters
    ----------
    progress : callable
        Told after each part how many bytes are written.

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

        def write(first: int) -> int:
            part = aligned_bytes(min(WRITE_BYTES, total - first))
            begin = first % len(source)
            part.copy_(repeated[begin : begin + len(part)])
            file.write(first, part)
            return first + len(part)

        for written in pool.map(write, range(0, total, WRITE_BYTES)):
            progress(written)
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
    bank : Tensor or FileBank [L, E, B]
        The experts.
    device : Device
        Where they are computed.
    geometry : ModelGeometry
        Of the model, with the size that an expert has here.
    hidden_size : int
        Hidden size D.
    layout : ExpertLayout
        Of the blocks.
    host : HostBank, optional
        Host memory between device and file.
    """

    def __init__(
        self,
        bank: Bank,
        device: Device,
        geometry: ModelGeometry,
        hidden_size: int,
        layout: ExpertLayout,
        host: HostBank | None = None,
    ) -> None:
        self.bank = bank
        self.device = device
        self.geometry = geometry
        self.hidden_size = hidden_size
        self.layout = layout
        self.host = host

    @property
    def label(self) -> str:
        """What results must say of it."""
        link = {**self.device.describe_link(), **(self.host.describe() if self.host else {})}
        told = [str(link[key]) for key in ("what", "io") if key in link]
        name = self.layout.kept.name
        return f"{self.device.name}, random weights in {name} ({', '.join(told)})"

    def passes(self, cache: ExpertCache) -> ForcedExperts:
        """Return what runs passes with a cache."""
        return ForcedExperts(
            self.bank, self.device, cache, self.hidden_size, self.layout, self.host
        )


@contextmanager
def random_machine(
    name: str,
    geometry: ModelGeometry,
    folder: Path,
    recorded: ExpertFormat,
    kept: ExpertFormat | None = None,
    host: str | None = None,
) -> Iterator[RandomMachine]:
    """Yield a machine for a geometry; what it wrote is removed afterwards.

    A geometry says how large an expert is, not how wide: its matrices are taken near square, since
    bytes and operations are the same.

    Parameters
    ----------
    name : str
        ``"cpu"``, ``"ssd"``, ``"cuda"`` or ``"cuda:1"``.
    geometry : ModelGeometry
        Of the model.
    folder : Path
        On the disk from which ``"ssd"`` reads.
    recorded : ExpertFormat
        The format of which the geometry says an expert's size.
    kept : ExpertFormat, optional
        How experts are kept, copied and computed here; by default in that format.
    host : str, optional
        Cache of experts in host memory; the experts are in a file then. By default memory holds all
        unless the device reads files.

    Raises
    ------
    InvalidInputError
        There is no such device, or an expert of this size cannot be gate, up and down.
    CheckpointError
        There is no room for the experts.
    """
    kept = kept or recorded
    sizes = near_square(recorded.num_weights(geometry.expert_bytes))
    geometry = replace(geometry, expert_bytes=kept.expert_bytes(*sizes))
    device = make_device(name, None)
    layout = layout_for(kept, device.torch_device)
    block = geometry.expert_bytes // layout.dtype.itemsize
    shape = geometry.num_layers, geometry.num_experts, block
    held: HostBank | None = None
    with TemporaryDirectory(prefix="specfit-forced-", dir=folder) as temporary:
        path = Path(temporary) / "experts.bin"
        try:
            if host is not None:
                in_host = host_cache(device, host, geometry)
                bank: Bank = write_bank(path, shape, layout.dtype)
                held = HostBank(bank, device, in_host)
            elif device.reads_files:
                bank = write_bank(path, shape, layout.dtype)
            else:
                bank = memory_bank(device, shape, layout.dtype)
            yield RandomMachine(bank, device, geometry, sizes[0], layout, held)
        finally:
            close_tiers(device, held)


def near_square(num_weights: int) -> tuple[int, int]:
    """Return hidden and intermediate size of an expert, the first a power of two."""
    size, hidden_size = num_weights // 3, 1
    while hidden_size**2 < size and size % (2 * hidden_size) == 0:
        hidden_size *= 2
    return hidden_size, size // hidden_size
