"""The experts module over slots of 4-bit codes."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PretrainedConfig

from specfit.backends.experts import OffloadedExperts
from specfit.backends.int4_layout import Int4Layout
from specfit.backends.store import ExpertStore


class Int4Experts(OffloadedExperts):
    """Computes one layer's experts, a slot at a time, with a kernel that reads the codes.

    Parameters
    ----------
    layer : int
        Index of the MoE layer.
    store : ExpertStore
        With pools of the layout's blocks.
    layout : Int4Layout
        How they lie there.
    activation : callable
        The model's gate activation.
    config : PretrainedConfig
        For the sizes.
    """

    def __init__(
        self,
        layer: int,
        store: ExpertStore,
        layout: Int4Layout,
        activation: Any,
        config: PretrainedConfig,
    ) -> None:
        self._layout = layout
        sizes = config.hidden_size, config.moe_intermediate_size
        super().__init__(layer, store, activation, *sizes)

    def use_store(self, store: ExpertStore) -> None:
        """See `OffloadedExperts.use_store`."""
        self.store = store
        self._slots = [
            self._layout.parts(block, self.hidden_size, self.intermediate_size)
            for block in store.pools[self.layer]
        ]

    def multiply(self, rows: Tensor, sizes: NDArray[np.int64], slots: NDArray[np.int64]) -> Tensor:
        """See `OffloadedExperts.multiply`."""
        kernel, group_size = self._layout.kernel, self._layout.group_size
        results = torch.empty_like(rows)
        parts = sizes.tolist()
        for slot, source, target in zip(
            slots.tolist(), rows.split(parts), results.split(parts), strict=True
        ):
            gate_up, down = self._slots[slot]
            both = kernel.multiply(source, gate_up.packed, group_size, gate_up.scales)
            gate, up = both.chunk(2, dim=-1)
            inner = self.activation(gate) * up
            target.copy_(kernel.multiply(inner, down.packed, group_size, down.scales))
        return results
