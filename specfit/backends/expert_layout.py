"""How experts lie in a bank: the numbers of a block, and how they get there from a checkpoint."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from transformers import Qwen3MoeConfig

from specfit.backends.checkpoint import Checkpoint, Layers
from specfit.core.expert_format import ExpertFormat

OnFilled = Callable[[int, int], None]
"""Called with the index of a layer that is complete, and the number of layers."""


class ExpertLayout(ABC):
    """What every block of a bank looks like.

    Attributes
    ----------
    kept : ExpertFormat
        The format, of which this is the form that a device computes with.
    dtype : torch.dtype
        Of the bank's numbers.
    """

    kept: ExpertFormat
    dtype: torch.dtype

    @property
    @abstractmethod
    def label(self) -> str:
        """What packed files of this layout are called; two labels never share bytes."""

    @abstractmethod
    def fill(
        self, checkpoint: Checkpoint, bank: Layers, layers: Sequence[int], on_layer: OnFilled | None
    ) -> None:
        """Write the experts of some layers to the bank.

        Raises
        ------
        CheckpointError
            A tensor is missing, has another shape, or a file is damaged.
        """

    def expert_bytes(self, config: Qwen3MoeConfig) -> int:
        """Return the bytes of a block: what one copy moves."""
        return self.kept.expert_bytes(config.hidden_size, config.moe_intermediate_size)

    def bank_shape(self, config: Qwen3MoeConfig) -> tuple[int, int, int]:
        """Return layers, experts a layer, and numbers of an expert's block."""
        block = self.expert_bytes(config) // self.dtype.itemsize
        return config.num_hidden_layers, config.num_experts, block


class PlainLayout(ExpertLayout):
    """Gate, up and down as they are, rows of outputs.

    Parameters
    ----------
    dtype : torch.dtype
        ``float32`` or ``bfloat16``.
    """

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype
        self.kept = ExpertFormat(str(dtype).removeprefix("torch."))

    @property
    def label(self) -> str:
        """See `ExpertLayout.label`."""
        return self.kept.dtype

    def fill(
        self, checkpoint: Checkpoint, bank: Layers, layers: Sequence[int], on_layer: OnFilled | None
    ) -> None:
        """See `ExpertLayout.fill`."""
        checkpoint.load_experts(bank, layers, on_layer)


class OneLayer:
    """Blocks of which one layer is in memory at a time: every index gives the same ones.

    Parameters
    ----------
    blocks : Tensor [E, B]
        The layer's.
    num_layers : int
        Layers that it stands for, one after the other.
    """

    def __init__(self, blocks: Tensor, num_layers: int) -> None:
        self._blocks = blocks
        self._num_layers = num_layers

    def __getitem__(self, layer: int) -> Tensor:
        return self._blocks

    def __len__(self) -> int:
        return self._num_layers
