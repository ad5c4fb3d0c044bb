"""The EAGLE-3 head without a cache: every row is computed anew, one path at a time."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def rms(x: Tensor, weight: Tensor) -> Tensor:
    return weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)


def rotated(x: Tensor, theta: float) -> Tensor:
    """x [P, heads, d]; position of a row is its index."""
    count, _, width = x.shape
    frequencies = theta ** (-torch.arange(0, width, 2).float() / width)
    angles = torch.arange(count).float()[:, None] * frequencies
    cos, sin = angles.cos()[:, None], angles.sin()[:, None]
    low, high = x[..., : width // 2], x[..., width // 2 :]
    return torch.cat([low * cos - high * sin, high * cos + low * sin], -1)


def run_rows(
    tensors: dict[str, Tensor],
    embedded: Tensor,
    hidden: Tensor,
    *,
    theta: float,
    norm_before_residual: bool,
) -> Tensor:
    """Run the layer causally over all rows; embedded and hidden [P, D]."""

    def weight(name: str) -> Tensor:
        return tensors[f"midlayer.{name}.weight"]

    def bias(name: str) -> Tensor:
        return tensors.get(f"midlayer.{name}.bias", torch.zeros(()))

    def project(x: Tensor, name: str) -> Tensor:
        return x @ weight(name).T + bias(name)

    count = len(hidden)
    normed = rms(hidden, weight("hidden_norm"))
    inputs = torch.cat([rms(embedded, weight("input_layernorm")), normed], -1)
    query = project(inputs, "self_attn.q_proj").view(count, 4, 16)
    key = project(inputs, "self_attn.k_proj").view(count, 2, 16)
    value = project(inputs, "self_attn.v_proj").view(count, 2, 16)
    if "midlayer.self_attn.q_norm.weight" in tensors:
        query, key = rms(query, weight("self_attn.q_norm")), rms(key, weight("self_attn.k_norm"))
    query, key = rotated(query, theta), rotated(key, theta)
    key, value = key.repeat_interleave(2, 1), value.repeat_interleave(2, 1)
    scores = torch.einsum("qhd,khd->hqk", query, key) / 4
    scores = scores.masked_fill(~torch.ones(count, count).tril().bool(), -torch.inf)
    attended = torch.einsum("hqk,khd->qhd", scores.softmax(-1), value).reshape(count, -1)
    residual = normed if norm_before_residual else hidden
    hidden = residual + project(attended, "self_attn.o_proj")
    inner = rms(hidden, weight("post_attention_layernorm"))
    gate, up = project(inner, "mlp.gate_proj"), project(inner, "mlp.up_proj")
    return hidden + project(F.silu(gate) * up, "mlp.down_proj")


def path_log_probs(
    tensors: dict[str, Tensor],
    embedding: Tensor,
    features: Tensor,
    next_tokens: list[int],
    path: list[int],
    *,
    theta: float = 10000.0,
    norm_before_residual: bool = False,
) -> Tensor:
    """Return log probabilities [Vd] after the committed pairs and a path of drafted tokens."""
    if "input_norm.weight" in tensors:
        features = rms(features, tensors["input_norm.weight"])
    hidden, tokens = features @ tensors["fc.weight"].T, list(next_tokens)
    flags = {"theta": theta, "norm_before_residual": norm_before_residual}
    last = run_rows(tensors, embedding[tokens], hidden, **flags)[-1]
    for token in path:
        tokens.append(token)
        hidden = torch.cat([hidden, last[None]])
        last = run_rows(tensors, embedding[tokens], hidden, **flags)[-1]
    return (rms(last, tensors["norm.weight"]) @ tensors["lm_head.weight"].T).log_softmax(-1)
