"""Data-parallel training on a CPU: processes of one thread that average gradients once a step.

On a machine that others use too this is several times faster than threads, which wait for each
other in every operation.
"""

from __future__ import annotations

import argparse
import math
import tempfile
import time
from collections.abc import Callable

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def add_worker_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of every training script that runs workers."""
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread")
    parser.add_argument("--seed", type=int, default=0)


def run_workers(work: Callable[[argparse.Namespace], None], args: argparse.Namespace) -> None:
    """Run ``work(args)`` in ``args.workers`` processes; ``work`` must be a module's function."""
    with tempfile.TemporaryDirectory() as folder:
        meeting = f"file://{folder}/meeting"
        mp.spawn(_start, args=(work, args, meeting), nprocs=args.workers)


def _start(
    rank: int,
    work: Callable[[argparse.Namespace], None],
    args: argparse.Namespace,
    meeting: str,
) -> None:
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    dist.init_process_group("gloo", init_method=meeting, rank=rank, world_size=args.workers)
    work(args)
    dist.destroy_process_group()


def is_first() -> bool:
    """Tell whether this worker is the one that prints and saves."""
    return dist.get_rank() == 0


def own_part(batch: torch.Tensor) -> torch.Tensor:
    """Return the rows of a batch that are this worker's."""
    return batch[dist.get_rank() :: dist.get_world_size()]


def average_gradients(model: torch.nn.Module) -> None:
    """Replace the gradients by their means over the workers."""
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    flat = torch.cat([gradient.flatten() for gradient in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    sizes = [gradient.numel() for gradient in gradients]
    for gradient, mean in zip(gradients, flat.split(sizes), strict=True):
        gradient.copy_(mean.view_as(gradient))


class SharedClock:
    """Seconds since its creation, the same in all workers."""

    def __init__(self) -> None:
        self.start = time.monotonic()

    def elapsed(self) -> float:
        """Seconds by the clock of the first worker."""
        seconds = torch.tensor([time.monotonic() - self.start], dtype=torch.float64)
        dist.broadcast(seconds, src=0)
        return seconds.item()


def cosine_after(progress: float, constant_share: float, final_share: float) -> float:
    """Factor of the learning rate: 1 up to ``constant_share``, then a cosine to ``final_share``."""
    decay = min(1.0, max(0.0, (progress - constant_share) / (1.0 - constant_share)))
    return final_share + (1.0 - final_share) * 0.5 * (1.0 + math.cos(math.pi * decay))
