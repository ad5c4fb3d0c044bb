"""Experts packed in a file, a block each, so that later starts map it and read nothing.

Packing goes layer by layer and can be interrupted: the manifest beside the file names the layers
that are whole, with their SHA-256, and the source that they come from.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from specfit.backends.checkpoint import Checkpoint, read_json
from specfit.backends.device import Device
from specfit.backends.direct_file import NUM_WRITERS, WRITE_BYTES, DirectWriter, aligned_bytes
from specfit.backends.expert_layout import ExpertLayout, OneLayer
from specfit.backends.file_bank import Bank, FileBank
from specfit.backends.safetensors_file import TensorFile
from specfit.backends.threads import finish
from specfit.core.errors import CheckpointError, InvalidInputError

FORMAT = 1
OnLayer = Callable[[int, int], None]
"""Called with the number of layers that are there, and of all layers."""


def bring_experts(
    checkpoint: Checkpoint,
    device: Device,
    layout: ExpertLayout,
    packed: Path | None = None,
    on_layer: OnLayer | None = None,
    stays_on_disk: bool = False,
) -> Bank:
    """Return the bank of a checkpoint [L, E, B].

    Parameters
    ----------
    device : Device
        It says what host memory must be like; where a mapped file will do, it is mapped, and where
        experts stay on disk nothing is loaded.
    layout : ExpertLayout
        How the experts lie in their blocks.
    packed : Path, optional
        Folder of the packed experts, packed now if they are not there.
    on_layer : callable, optional
        Told of progress.
    stays_on_disk : bool
        Whether nothing is loaded, whatever the device: experts are read when they are needed.

    Raises
    ------
    CheckpointError
        The checkpoint or the packed file is damaged, or there is no room for it.
    InvalidInputError
        Experts stay on disk, and no folder is given.
    """
    stays_on_disk |= device.reads_files
    shape, dtype = layout.bank_shape(checkpoint.config), layout.dtype
    if packed is None and stays_on_disk:
        raise InvalidInputError(
            "experts that stay on disk are read from a packed file; no folder was given. Give "
            "packed=FOLDER (--packed FOLDER)."
        )
    if packed is None or not (device.maps_files or stays_on_disk):
        check_room(torch.Size(shape).numel() * dtype.itemsize)
    if packed is None:
        bank = device.allocate_host(shape, dtype)
        layout.fill(checkpoint, bank, range(shape[0]), _counted(on_layer))
        return bank
    file = PackedExperts.of(checkpoint, layout, packed)
    file.complete(checkpoint, on_layer)
    if stays_on_disk:
        return FileBank.open(file.path, file.shape, dtype)
    if device.maps_files:
        return file.map()
    bank = device.allocate_host(shape, dtype)
    for layer in range(shape[0]):
        file.read_layer(layer, bank[layer])
        if on_layer is not None:
            on_layer(layer + 1, shape[0])
    return bank


def available_bytes() -> int | None:
    """Return the host memory that a process may still take; None where the system does not say."""
    status = Path("/proc/meminfo")
    if not status.is_file():
        return None
    said = dict(line.split(":") for line in status.read_text("ascii").splitlines())
    return int(said["MemAvailable"].split()[0]) * 1024


def check_room(num_bytes: int) -> None:
    """Raise before the system would end the process for taking too much."""
    available = available_bytes()
    if available is not None and num_bytes > available:
        raise CheckpointError(
            f"the experts need {num_bytes / 2**30:.1f} GiB of host memory, and "
            f"{available / 2**30:.1f} GiB are available. On a CPU, --packed FOLDER maps them from "
            f"a file instead; specfit memory says what fits."
        )


@dataclass(frozen=True)
class PackedExperts:
    """The packed experts of one checkpoint in one layout.

    Parameters
    ----------
    path : Path
        The file of blocks; its manifest lies beside it, with ``.json``.
    shape : tuple of int
        ``(L, E, B)``.
    layout : ExpertLayout
        Of the blocks.
    source : dict
        Of every file that they come from: size, time of the last change, SHA-256 of the header.
    """

    path: Path
    shape: tuple[int, int, int]
    layout: ExpertLayout
    source: dict[str, list[Any]]

    @classmethod
    def of(cls, checkpoint: Checkpoint, layout: ExpertLayout, folder: Path) -> PackedExperts:
        """Return the packed experts of a checkpoint in a folder, there or not yet there.

        Raises
        ------
        CheckpointError
            What is there comes from another checkpoint.
        """
        source = {path.name: _identity(path) for path in checkpoint.files}
        shape = layout.bank_shape(checkpoint.config)
        packed = cls(folder / f"experts.{layout.label}.bin", shape, layout, source)
        if packed.manifest_path.is_file() and packed._manifest() != packed._heading():
            raise CheckpointError(
                f"{packed.path} holds the experts of another checkpoint, or of an earlier state of "
                f"{checkpoint.folder}. Name another folder, or remove it."
            )
        return packed

    @property
    def dtype(self) -> torch.dtype:
        """Of the blocks' numbers."""
        return self.layout.dtype

    @property
    def manifest_path(self) -> Path:
        """Where the manifest lies."""
        return self.path.with_suffix(".json")

    @property
    def layer_bytes(self) -> int:
        """Bytes of a layer's blocks."""
        return self.shape[1] * self.shape[2] * self.dtype.itemsize

    @property
    def num_bytes(self) -> int:
        """Bytes of the file."""
        return self.shape[0] * self.layer_bytes

    def layers(self) -> list[str]:
        """Return the SHA-256 of each layer that is whole, in order."""
        if not self.manifest_path.is_file():
            return []
        return [str(digest) for digest in read_json(self.manifest_path)["layers"]]

    def complete(self, checkpoint: Checkpoint, on_layer: OnLayer | None = None) -> None:
        """Pack the layers that are not there yet.

        Raises
        ------
        CheckpointError
            There is no room, or the file has lost bytes that its manifest names.
        """
        done = self.layers()
        self._check_size(done)
        if len(done) == self.shape[0]:
            return
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._reserve(len(done))
        data = aligned_bytes(self.layer_bytes)
        layer = data.view(self.dtype).view(self.shape[1:])
        with DirectWriter(self.path) as file, ThreadPoolExecutor(NUM_WRITERS) as pool:

            def write(layer_start: int, first: int) -> None:
                file.write(layer_start + first, data[first : first + WRITE_BYTES])

            def keep(number: int, count: int) -> None:
                places = range(0, len(data), WRITE_BYTES)
                writes = [pool.submit(write, number * len(data), first) for first in places]
                digest = hashlib.sha256(memoryview(data.numpy())).hexdigest()  # meanwhile
                finish(writes)
                file.flush()
                done.append(digest)
                self._write_manifest(done)
                if on_layer is not None:
                    on_layer(number + 1, count)

            rest = range(len(done), self.shape[0])
            self.layout.fill(checkpoint, OneLayer(layer, self.shape[0]), rest, keep)

    def map(self) -> Tensor:
        """Return the blocks, mapped into memory; they are read when they are first used."""
        count = torch.Size(self.shape).numel()
        flat = torch.from_file(str(self.path), shared=False, size=count, dtype=self.dtype)
        return flat.view(self.shape)

    def read_layer(self, layer: int, blocks: Tensor) -> None:
        """Read a layer's blocks into memory.

        Raises
        ------
        CheckpointError
            The file ends too early.
        """
        target = memoryview(blocks.view(-1).view(torch.uint8).numpy())
        with self.path.open("rb", buffering=0) as file:
            file.seek(layer * self.layer_bytes)
            done = 0
            while done < len(target):
                count = file.readinto(target[done:])
                if not count:
                    raise CheckpointError(f"{self.path} ends within layer {layer}. Pack it again.")
                done += count

    def verify(self, on_layer: OnLayer | None = None) -> None:
        """Read everything and hold it against the manifest's SHA-256; slow, a check.

        Raises
        ------
        CheckpointError
            A layer is not what was packed.
        """
        digests = self.layers()
        self._check_size(digests)
        layer = torch.empty(self.shape[1:], dtype=self.dtype)
        for number, digest in enumerate(digests):
            self.read_layer(number, layer)
            data = memoryview(layer.view(-1).view(torch.uint8).numpy())
            if hashlib.sha256(data).hexdigest() != digest:
                raise CheckpointError(
                    f"{self.path}: layer {number} is not what was packed. Remove the file and "
                    f"start again."
                )
            if on_layer is not None:
                on_layer(number + 1, len(digests))

    def _heading(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "shape": list(self.shape),
            "dtype": self.layout.label,
            "source": self.source,
        }

    def _manifest(self) -> dict[str, Any]:
        said = read_json(self.manifest_path)
        return {key: said.get(key) for key in self._heading()}

    def _write_manifest(self, layers: list[str]) -> None:
        partial = self.manifest_path.with_suffix(".json.part")
        text = json.dumps({**self._heading(), "layers": layers}, indent=1) + "\n"
        partial.write_text(text, encoding="utf-8")
        partial.replace(self.manifest_path)

    def _check_size(self, layers: list[str]) -> None:
        size = self.path.stat().st_size if self.path.is_file() else 0
        if size < len(layers) * self.layer_bytes:
            raise CheckpointError(
                f"{self.path} has {size} bytes, and its manifest names {len(layers)} layers of "
                f"{self.layer_bytes}. Remove both and start again."
            )

    def _reserve(self, num_layers: int) -> None:
        """Make the file exist and see that the layers still to come have room."""
        self.path.touch()
        needed = (self.shape[0] - num_layers) * self.layer_bytes
        free = shutil.disk_usage(self.path.parent).free
        if needed > free:
            raise CheckpointError(
                f"packing needs {needed / 2**30:.1f} GiB in {self.path.parent}, and "
                f"{free / 2**30:.1f} GiB are free. Name a folder on another disk."
            )


def _identity(path: Path) -> list[Any]:
    """Return a file's size, time, and SHA-256 of its header, which names all its tensors."""
    with TensorFile(path) as file:
        said = repr(list(file.entries.items())).encode()
    return [path.stat().st_size, path.stat().st_mtime_ns, hashlib.sha256(said).hexdigest()]


def _counted(on_layer: OnLayer | None) -> OnLayer | None:
    if on_layer is None:
        return None
    return lambda layer, count: on_layer(layer + 1, count)
