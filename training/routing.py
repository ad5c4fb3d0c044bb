"""Routing of a target on held-out text: load balance, locality and hit rates of an LRU cache."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import Tensor
from transformers import Qwen3MoeForCausalLM

WINDOWS = (1, 2, 4, 8, 16, 32)
CAPACITY_SHARES = (0.25, 0.5, 0.75)


class RouterTap:
    """Records the experts of the last forward pass, int64 [L, rows, K]."""

    def __init__(self, target: Qwen3MoeForCausalLM):
        self.layers: list[Tensor] = [torch.empty(0)] * target.config.num_hidden_layers
        self.handles = [
            layer.mlp.gate.register_forward_hook(self.hook(number))
            for number, layer in enumerate(target.model.layers)
        ]

    def hook(self, number: int):
        """Make a hook that keeps the expert indices of the router of layer ``number``."""

        def keep(module, inputs, output) -> None:
            self.layers[number] = output[2]

        return keep

    def experts(self) -> Tensor:
        """Experts of the last pass, [L, rows, K]."""
        return torch.stack(self.layers)

    def close(self) -> None:
        """Remove the hooks."""
        for handle in self.handles:
            handle.remove()


@torch.inference_mode()
def route_blocks(target: Qwen3MoeForCausalLM, blocks: Tensor) -> Tensor:
    """Experts of every token of blocks [B, T], as [B, L, T, K]."""
    tap = RouterTap(target)
    routed = []
    for block in blocks:
        target(input_ids=block[None], use_cache=False)
        routed.append(tap.experts())
    tap.close()
    return torch.stack(routed)


def expert_loads(routed: Tensor, num_experts: int) -> Tensor:
    """Load of each expert relative to the mean, [L, E]."""
    counts = torch.stack(
        [layer.flatten().bincount(minlength=num_experts) for layer in routed.unbind(dim=1)]
    ).float()
    return counts / counts.mean(dim=1, keepdim=True)


def one_hot(routed: Tensor, num_experts: int) -> Tensor:
    """Mark indices: bool [..., T, E] from indices [..., T, K]."""
    shape = (*routed.shape[:-1], num_experts)
    return torch.zeros(shape, dtype=torch.bool).scatter_(-1, routed, True)


def distinct_experts(routed: Tensor, num_experts: int, window: int) -> float:
    """Mean number of distinct experts a layer in ``window`` consecutive tokens."""
    is_used = one_hot(routed, num_experts)  # [B, L, T, E]
    num_windows = is_used.shape[2] // window
    grouped = is_used[:, :, : num_windows * window].unflatten(2, (num_windows, window))
    return grouped.any(dim=3).sum(dim=-1).float().mean().item()


def overlap_with_previous(routed: Tensor, num_experts: int) -> list[float]:
    """Share, a layer, of a token's experts that the previous token used too."""
    is_used = one_hot(routed, num_experts)
    shared = (is_used[:, :, 1:] & is_used[:, :, :-1]).sum(dim=-1).float()
    return (shared.mean(dim=(0, 2)) / routed.shape[-1]).tolist()


def lru_hit_rate(routed: Tensor, capacity: int) -> float:
    """Hit rate of one LRU cache a layer that sees the tokens one by one, blocks in a row."""
    hits = requests = 0
    for layer in routed.transpose(0, 1).flatten(1, 2):  # [B * T, K]
        cache: OrderedDict[int, None] = OrderedDict()
        for experts in layer.tolist():
            for expert in experts:
                requests += 1
                hits += expert in cache
                cache[expert] = None
                cache.move_to_end(expert)
            while len(cache) > capacity:
                cache.popitem(last=False)
    return hits / requests


def balance_table(loads: Tensor) -> list[str]:
    """Markdown rows: the load of the busiest and of the idlest expert of each layer."""
    rows = ["| layer | busiest expert | idlest expert | entropy / maximum |", "|---|---|---|---|"]
    for number, load in enumerate(loads):
        probs = load / load.sum()
        entropy = -(probs * probs.clamp(min=1e-12).log()).sum() / torch.tensor(len(load)).log()
        rows.append(f"| {number} | {load.max():.2f} | {load.min():.2f} | {entropy:.3f} |")
    return rows


def locality_lines(routed: Tensor, num_experts: int) -> list[str]:
    """Markdown lines: distinct experts a window, overlap, hit rates."""
    distinct = [f"{distinct_experts(routed, num_experts, w):.1f}" for w in WINDOWS]
    overlap = [f"{share:.2f}" for share in overlap_with_previous(routed, num_experts)]
    rates = [lru_hit_rate(routed, int(share * num_experts)) for share in CAPACITY_SHARES]
    return [
        f"- Distinct experts a layer in {', '.join(map(str, WINDOWS))} consecutive tokens: "
        + ", ".join(distinct),
        "- Share of a token's experts that the previous token used, by layer: "
        + ", ".join(overlap),
        "- LRU hit rate, token by token, at "
        + ", ".join(f"{share:.0%}" for share in CAPACITY_SHARES)
        + " of the experts: "
        + ", ".join(f"{rate:.2f}" for rate in rates),
    ]
