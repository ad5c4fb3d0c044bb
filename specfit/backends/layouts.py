"""Which layout the experts of a checkpoint get on a device."""

from __future__ import annotations

import torch

from specfit.backends.checkpoint import Checkpoint
from specfit.backends.expert_layout import ExpertLayout, PlainLayout
from specfit.backends.int4_kernels import make_kernel
from specfit.backends.int4_layout import Int4Layout
from specfit.core.errors import CheckpointError
from specfit.core.expert_format import ExpertFormat


def make_layout(
    checkpoint: Checkpoint, device: torch.device, dtype: torch.dtype, experts: str | None
) -> ExpertLayout:
    """Return the layout of a format: ``int4``, ``int4:64``, or None for the checkpoint's own.

    Raises
    ------
    InvalidInputError
        There is no such format, or none for the device, the type or the model's sizes.
    CheckpointError
        The checkpoint has codes in other groups.
    """
    kept = ExpertFormat.parse(experts, str(dtype).removeprefix("torch."))
    if checkpoint.quantization is not None:
        group_size = checkpoint.quantization.group_size
        if kept.group_size not in (None, group_size):
            raise CheckpointError(
                f"{checkpoint.folder} has 4-bit groups of {group_size}; {kept.group_size} were "
                f"asked for. Leave the format out, or quantise the original."
            )
        kept = ExpertFormat(kept.dtype, group_size)
    return layout_for(kept, device)


def layout_for(kept: ExpertFormat, device: torch.device) -> ExpertLayout:
    """Return the layout of a format on a device.

    Raises
    ------
    InvalidInputError
        There is none for the device and the type.
    """
    dtype: torch.dtype = getattr(torch, kept.dtype)
    if kept.group_size is None:
        return PlainLayout(dtype)
    return Int4Layout(kept, make_kernel(device, dtype))
