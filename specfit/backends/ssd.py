"""The CPU as a device whose experts stay on disk: copies are reads, done by a pool of threads.

The copy thread takes one batch of copies after the other, as on any CPU device, so order, errors
and counters are the same; a batch is split into parts that the pool reads at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import ClassVar

import torch
from torch import Tensor

from specfit.backends.cpu import CpuDevice
from specfit.backends.device import Copy, EmulatedLink
from specfit.backends.direct_file import DIRECT, aligned
from specfit.backends.file_bank import FileBlock, deliver
from specfit.core.errors import InvalidInputError

PART_BYTES = 2**20
"""Of one read: small enough to keep a disk busy with one expert, large enough to be fast."""

NUM_THREADS = 8


class SsdDevice(CpuDevice):
    """Computes on the CPU over slots that are filled from a file.

    Parameters
    ----------
    link : EmulatedLink, optional
        A slower disk to emulate; without one, reads take as long as they take.
    num_threads : int
        Reads that are under way at once.
    """

    maps_files: ClassVar[bool] = False
    reads_files: ClassVar[bool] = True

    def __init__(self, link: EmulatedLink | None = None, num_threads: int = NUM_THREADS) -> None:
        if num_threads < 1:
            raise InvalidInputError(f"num_threads must be at least 1; got {num_threads}.")
        super().__init__(link)
        self.name = "cpu, experts on disk"
        self.num_threads = num_threads
        self._io: set[str] = set()
        self._pool: ThreadPoolExecutor | None = None

    def allocate(self, shape: Sequence[int], dtype: torch.dtype) -> Tensor:
        """See `Device.allocate`. On the grid of direct reads."""
        return aligned(shape, dtype)

    def describe_link(self) -> dict[str, object]:
        """See `Device.describe_link`."""
        said = super().describe_link()
        if self.link is None:
            said["what"] = f"reads from disk, {self.num_threads} at once"
        return {**said, "io": "; ".join(sorted(self._io)) or DIRECT, "threads": self.num_threads}

    def close(self) -> None:
        """See `Device.close`."""
        super().close()
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None

    def _move(self, copies: Sequence[Copy]) -> BaseException | None:
        """Read all parts of a batch; nothing is under way any more when this returns."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.num_threads, "specfit-read")
        reads: list[Future[None]] = []
        try:
            with torch.inference_mode():
                for source, destination in copies:
                    reads += self._submit(self._pool, source, destination)
        except Exception as error:  # handed to the thread that waits
            wait(reads)
            return error
        wait(reads)
        errors = (read.exception() for read in reads)
        return next((error for error in errors if error is not None), None)

    def _submit(
        self, pool: ThreadPoolExecutor, source: Tensor | FileBlock, destination: Tensor
    ) -> list[Future[None]]:
        if not isinstance(source, FileBlock):
            deliver(source, destination)
            return []
        self._io.add(source.file.io)
        parts = source.parts(destination, PART_BYTES)
        return [pool.submit(source.file.read, offset, part) for offset, part in parts]
