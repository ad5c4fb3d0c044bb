"""A faster way to train Qwen3-MoE experts on a CPU, registered with transformers.

The stock ``grouped_mm`` gathers one row a (token, expert) pair and scatters its gradient with
``index_put``, a fifth of a training step at this size. Sorting the pairs is a permutation, so its
gradient is a gather by the inverse permutation. The arithmetic of the forward pass is unchanged.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import grouped_mm, silu
from transformers.integrations.moe import ALL_EXPERTS_FUNCTIONS

SORTED_EXPERTS = "sorted_mm"


class Permute(torch.autograd.Function):
    """Rows of ``x`` in the order ``order``; the gradient goes back through ``inverse``."""

    @staticmethod
    def forward(ctx, x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        """Reorder the rows."""
        ctx.save_for_backward(inverse)
        return x[order]

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, None, None]:
        """Restore the order of the rows of the gradient."""
        return grad[ctx.saved_tensors[0]], None, None


def sorted_experts(module, hidden: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
    """Experts forward on pairs sorted by expert: hidden [T, D], index and weights [T, K]."""
    num_tokens, top_k = top_k_index.shape
    expert_ids = top_k_index.reshape(-1)
    order = expert_ids.argsort()
    inverse = order.argsort()
    offsets = expert_ids.bincount(minlength=module.num_experts).cumsum(0).int()

    pairs = hidden.unsqueeze(1).expand(-1, top_k, -1).reshape(num_tokens * top_k, -1)
    rows = Permute.apply(pairs, order, inverse)  # [T * K, D]
    gate, up = grouped_mm(rows, module.gate_up_proj.transpose(1, 2), offs=offsets).chunk(2, dim=-1)
    rows = grouped_mm(silu(gate) * up, module.down_proj.transpose(1, 2), offs=offsets)
    pairs = Permute.apply(rows, inverse, order).view(num_tokens, top_k, -1)
    return (pairs * top_k_weights.unsqueeze(-1)).sum(dim=1)


def register_sorted_experts() -> None:
    """Make ``SORTED_EXPERTS`` a name that ``set_experts_implementation`` accepts."""
    ALL_EXPERTS_FUNCTIONS.register(SORTED_EXPERTS, sorted_experts)
