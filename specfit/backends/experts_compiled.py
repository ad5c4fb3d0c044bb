"""The experts module on a CPU: few pairs go through a compiled kernel, many through torch.

A verified tree has a handful of nodes; there torch spends its time on calls, not on arithmetic, and
an expert would cost ten times what reading its weights does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers import PretrainedConfig

from specfit.backends._expert_kernels import group_pairs, run_wave, sum_pairs
from specfit.backends.expert_layout import ExpertLayout
from specfit.backends.experts import OffloadedExperts
from specfit.backends.int4_experts import Int4Experts
from specfit.backends.int4_layout import Int4Layout
from specfit.backends.store import ExpertStore

MOST_PAIRS = 512
MOST_WEIGHTS = 2**20
"""Of one expert: larger ones are faster in torch, whatever the number of pairs."""


def make_experts(
    layer: int,
    store: ExpertStore,
    layout: ExpertLayout,
    config: PretrainedConfig,
    activation: Any,
) -> OffloadedExperts:
    """Return the experts module of a layer in the form that suits layout, device and size."""
    if isinstance(layout, Int4Layout):
        return Int4Experts(layer, store, layout, activation, config)
    bank = store.bank
    is_small = bank.shape[2] <= MOST_WEIGHTS
    is_plain = bank.dtype == torch.float32 and config.hidden_act == "silu"
    on_cpu = store.device.torch_device.type == "cpu"
    kind = CompiledExperts if on_cpu and is_small and is_plain else OffloadedExperts
    return kind(layer, store, activation, config.hidden_size, config.moe_intermediate_size)


class CompiledExperts(OffloadedExperts):
    """The same arithmetic as `OffloadedExperts`, up to rounding, with a call for each wave."""

    def use_store(self, store: ExpertStore) -> None:
        """See `OffloadedExperts.use_store`."""
        super().use_store(store)
        self._pool: NDArray[np.float32] = store.pools[self.layer].numpy()

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """See `OffloadedExperts.forward`."""
        if top_k_index.numel() > MOST_PAIRS:
            return super().forward(hidden_states, top_k_index, top_k_weights)
        hidden = hidden_states.contiguous().numpy()
        self.routing = routing = top_k_index.numpy()
        num_experts = self.store.geometry.num_experts
        order, counts = np.empty(routing.size, np.int64), np.empty(num_experts, np.int64)
        group_pairs(routing, order, counts)
        outputs = np.empty((routing.size, self.hidden_size), np.float32)
        for wave in self.waves(counts):
            slot_of = np.full(num_experts, -1, np.int64)
            slot_of[wave.experts] = wave.slots
            run_wave(hidden, order, routing, slot_of, self._pool, self.intermediate_size, outputs)
        total = torch.empty_like(hidden_states, memory_format=torch.contiguous_format)
        sum_pairs(outputs, top_k_weights.contiguous().numpy(), total.numpy())
        return total
