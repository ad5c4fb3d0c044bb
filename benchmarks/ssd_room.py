"""The room that the disk benchmark takes: its weights on the disk, its slots in memory."""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks.ssd_world import Slice
from specfit.backends.direct_file import WRITE_BYTES
from specfit.backends.file_bank import FileBank
from specfit.backends.packed import available_bytes
from specfit.backends.random_bank import write_bank
from specfit.sim.synth.parameters import QWEN3_30B_A3B

GIB = 2**30
SPARE_BYTES = 4 * GIB
"""Of the disk, left free."""
MARGIN_BYTES = 3 * GIB
"""Of memory, beside the slots."""
TOLD_BYTES = 4 * 10**9
"""Written between two lines of progress."""
WEIGHTS = "experts.bin"
STARTED_S = time.perf_counter()


def slots_for(gib: float) -> int:
    """Return the slots of a layer when all 48 share a cache of this size in bf16."""
    return int(gib * GIB // (QWEN3_30B_A3B.num_layers * QWEN3_30B_A3B.expert_bytes))


def layers_that_fit(folder: Path) -> int:
    """Return how many layers the disk has room for, at least one and at most all."""
    room = shutil.disk_usage(folder).free - SPARE_BYTES
    return max(1, min(QWEN3_30B_A3B.num_layers, room // Slice(1).num_bytes))


def check_room(part: Slice, gibs: Sequence[float], folder: Path) -> None:
    """Raise before a disk or the memory would turn out too small.

    Raises
    ------
    SystemExit
        Slots of the largest cache and a margin are more than memory has, or the weights and what
        stays free more than the disk has.
    """
    slots = slots_for(max(gibs)) * part.num_layers * part.geometry.expert_bytes
    available = available_bytes()
    if available is not None and slots + MARGIN_BYTES > available:
        raise SystemExit(
            f"the slots of {max(gibs):g} GiB take {slots / GIB:.1f} GiB of memory in "
            f"{part.num_layers} layers and all else up to {MARGIN_BYTES / GIB:.0f} GiB; "
            f"{available / GIB:.1f} GiB are available. Take a smaller cache (--cache-gib) or fewer "
            f"layers (--layers)."
        )
    free = shutil.disk_usage(folder).free
    if not is_there(folder, part) and part.num_bytes + SPARE_BYTES > free:
        raise SystemExit(
            f"the weights of {part.num_layers} layers take {part.num_bytes / GIB:.1f} GiB of disk, "
            f"and {SPARE_BYTES / GIB:.0f} GiB stay free; {folder.resolve()} has {free / GIB:.1f} "
            f"GiB. Take fewer layers (--layers) or another disk (--folder)."
        )


def is_there(folder: Path, part: Slice) -> bool:
    """Return whether a folder holds the weights."""
    path = folder / WEIGHTS
    return path.is_file() and path.stat().st_size == part.num_bytes


def bank_of(folder: Path, part: Slice) -> FileBank:
    """Return the weights in a folder, written now if they are not there."""
    path = folder / WEIGHTS
    if is_there(folder, part):
        return FileBank.open(path, part.shape, part.dtype)
    started = time.perf_counter()

    def told(done: int) -> None:
        if done // TOLD_BYTES > (done - WRITE_BYTES) // TOLD_BYTES or done == part.num_bytes:
            speed = done / (time.perf_counter() - started)
            parts = f"{done / 1e9:.0f} of {part.num_bytes / 1e9:.0f} GB"
            say(f"weights: {parts}, {speed / 1e9:.2f} GB/s")

    unfinished = path.with_suffix(".part")
    write_bank(unfinished, part.shape, part.dtype, told)
    unfinished.rename(path)
    return FileBank.open(path, part.shape, part.dtype)


def say(text: str) -> None:
    """Print a line with the seconds since the start."""
    print(f"[{time.perf_counter() - STARTED_S:5.0f} s] {text}", flush=True)
