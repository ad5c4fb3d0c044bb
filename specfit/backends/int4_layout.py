"""Blocks of 4-bit codes: gate and up with their scales, then down with its own, one copy each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers import Qwen3MoeConfig

from specfit.backends.checkpoint import Checkpoint, Layers
from specfit.backends.expert_layout import ExpertLayout, OneLayer, OnFilled
from specfit.backends.int4_kernels import Int4Kernel
from specfit.backends.int4_matrix import Int4Matrix, quantize, stack
from specfit.core.errors import CheckpointError
from specfit.core.expert_format import ExpertFormat


@dataclass(frozen=True, eq=False)
class Int4Part:
    """A matrix of a block as the kernel wants it: codes, and scales [G, R, 2]."""

    packed: Tensor
    scales: Tensor


class Int4Layout(ExpertLayout):
    """Blocks for one kernel.

    Parameters
    ----------
    kept : ExpertFormat
        With a group size.
    kernel : Int4Kernel
        What multiplies.
    """

    dtype = torch.uint8

    def __init__(self, kept: ExpertFormat, kernel: Int4Kernel) -> None:
        assert kept.group_size is not None, "4-bit codes"
        self.kept = kept
        self.kernel = kernel
        self.group_size = kept.group_size
        self.scale_dtype: torch.dtype = getattr(torch, kept.dtype)

    @property
    def label(self) -> str:
        """See `ExpertLayout.label`."""
        return f"int4-{self.group_size}.{self.kept.dtype}.{self.kernel.name}"

    def fill(
        self, checkpoint: Checkpoint, bank: Layers, layers: Sequence[int], on_layer: OnFilled | None
    ) -> None:
        """See `ExpertLayout.fill`. Quantises, or orders the codes that the checkpoint has."""
        self._check(checkpoint.config)
        if checkpoint.quantization is not None:
            self._reorder(checkpoint, bank, layers, on_layer)
            return
        config, dtype = checkpoint.config, checkpoint.expert_dtype()
        size, width = config.moe_intermediate_size, config.hidden_size
        numbers = torch.empty(config.num_experts, 3 * size * width, dtype=dtype)
        gate_up, down = numbers.split([2 * size * width, size * width], dim=1)

        def pack(layer: int, num_layers: int) -> None:
            for expert, block in enumerate(bank[layer]):
                self._write(
                    block,
                    self._quantize(gate_up[expert].view(2 * size, width)),
                    self._quantize(down[expert].view(width, size)),
                )
            if on_layer is not None:
                on_layer(layer, num_layers)

        checkpoint.load_experts(OneLayer(numbers, len(bank)), layers, pack)

    def parts(
        self, block: Tensor, hidden_size: int, intermediate_size: int
    ) -> tuple[Int4Part, ...]:
        """Return gate and up together, and down, as views of a block uint8[B]."""
        shapes = (2 * intermediate_size, hidden_size), (hidden_size, intermediate_size)
        sizes = [self.kept.matrix_bytes(*shape) for shape in shapes]
        return tuple(
            self._part(part, *shape) for part, shape in zip(block.split(sizes), shapes, strict=True)
        )

    def _part(self, part: Tensor, rows: int, columns: int) -> Int4Part:
        split = rows * columns // 2
        scales = part[split:].view(self.scale_dtype).view(-1, rows, 2)
        return Int4Part(self.kernel.view(part[:split], rows, columns), scales)

    def _quantize(self, numbers: Tensor) -> Int4Matrix:
        return quantize(numbers, self.group_size, self.scale_dtype)

    def _write(self, block: Tensor, *matrices: Int4Matrix) -> None:
        """Write matrices to a block, one after the other."""
        first = 0
        for matrix in matrices:
            packed = self.kernel.pack(matrix.codes)
            scales = torch.stack([matrix.scales.t(), matrix.zeros.t()], dim=-1)  # [G, R, 2]
            for data in (packed, scales.to(self.scale_dtype).view(-1).view(torch.uint8)):
                block[first : first + len(data)] = data
                first += len(data)

    def _reorder(
        self, checkpoint: Checkpoint, bank: Layers, layers: Sequence[int], on_layer: OnFilled | None
    ) -> None:
        with checkpoint.open_quantized() as source:
            for layer in layers:
                for expert, block in enumerate(bank[layer]):
                    gate, up, down = source.expert(layer, expert)
                    self._write(block, stack([gate, up]), down)
                if on_layer is not None:
                    on_layer(layer, len(bank))

    def _check(self, config: Qwen3MoeConfig) -> None:
        for rows in (2 * config.moe_intermediate_size, config.hidden_size):
            if rows % self.kernel.row_multiple:
                raise CheckpointError(
                    f"the 4-bit kernel of {self.kernel.name} takes rows by "
                    f"{self.kernel.row_multiple}; an expert of this model has {rows}. Keep the "
                    f"experts as they are."
                )
