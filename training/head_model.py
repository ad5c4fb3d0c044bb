"""The EAGLE-3 head: one Llama-type layer that reads target features and the next token.

Tensor names are those of the common checkpoint format, so ``state_dict`` is the file.
Shapes: B sequences, P pairs, D hidden size, F = 3 D, S rows seen before, Vd draft vocabulary.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional
from transformers import Qwen3MoeForCausalLM

KeyValues = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class HeadConfig:
    """Shape of a head. ``aux_layer_ids`` are target layers whose *outputs* are the features."""

    vocab_size: int
    draft_vocab_size: int
    hidden_size: int = 128
    intermediate_size: int = 384
    num_heads: int = 4
    num_kv_heads: int = 2
    head_dim: int = 32
    rope_theta: float = 10000.0
    rms_norm_eps: float = 1e-6
    aux_layer_ids: tuple[int, int, int] = (0, 2, 4)
    max_positions: int = 512


class Attention(nn.Module):
    """Grouped-query attention whose queries, keys and values read rows of width 2 D."""

    def __init__(self, config: HeadConfig):
        super().__init__()
        self.config = config
        width, query = 2 * config.hidden_size, config.num_heads * config.head_dim
        self.q_proj = nn.Linear(width, query, bias=False)
        self.k_proj = nn.Linear(width, config.num_kv_heads * config.head_dim, bias=False)
        self.v_proj = nn.Linear(width, config.num_kv_heads * config.head_dim, bias=False)
        self.o_proj = nn.Linear(query, config.hidden_size, bias=False)

    def forward(
        self, x: Tensor, positions: Tensor, mask: Tensor, past: KeyValues | None
    ) -> tuple[Tensor, KeyValues]:
        """Map x [B, P, 2 D] to [B, P, D], and return all rows; bool mask [P, S + P]."""
        batch, num_pairs, _ = x.shape
        shape = (batch, num_pairs, -1, self.config.head_dim)
        query = rotate(self.q_proj(x).view(shape).transpose(1, 2), positions, self.config)
        key = rotate(self.k_proj(x).view(shape).transpose(1, 2), positions, self.config)
        value = self.v_proj(x).view(shape).transpose(1, 2)
        if past is not None:
            key = torch.cat([past[0], key], dim=2)
            value = torch.cat([past[1], value], dim=2)
        out = functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, enable_gqa=True
        )
        return self.o_proj(out.transpose(1, 2).flatten(2)), (key, value)


def rotate(x: Tensor, positions: Tensor, config: HeadConfig) -> Tensor:
    """Rotary embedding in the half-rotation layout; x [B, heads, P, head_dim]."""
    half = config.head_dim // 2
    frequencies = config.rope_theta ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = positions.float()[:, None] * frequencies
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)
    low, high = x[..., :half], x[..., half:]
    return torch.cat([low * cos - high * sin, high * cos + low * sin], dim=-1)


class Mlp(nn.Module):
    """SwiGLU."""

    def __init__(self, config: HeadConfig):
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Apply to [..., D]."""
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    """The decoder layer; the residual is the hidden state before its norm."""

    def __init__(self, config: HeadConfig):
        super().__init__()
        size, eps = config.hidden_size, config.rms_norm_eps
        self.input_layernorm = nn.RMSNorm(size, eps)
        self.hidden_norm = nn.RMSNorm(size, eps)
        self.self_attn = Attention(config)
        self.post_attention_layernorm = nn.RMSNorm(size, eps)
        self.mlp = Mlp(config)

    def forward(
        self,
        embeddings: Tensor,
        hidden: Tensor,
        positions: Tensor,
        mask: Tensor,
        past: KeyValues | None,
    ) -> tuple[Tensor, KeyValues]:
        """Map embeddings and hidden [B, P, D] to the next hidden [B, P, D], and return all rows."""
        x = torch.cat([self.input_layernorm(embeddings), self.hidden_norm(hidden)], dim=-1)
        attended, rows = self.self_attn(x, positions, mask, past)
        hidden = hidden + attended
        return hidden + self.mlp(self.post_attention_layernorm(hidden)), rows


class Eagle3Head(nn.Module):
    """The whole head. ``d2t`` holds offsets: target id = draft id + d2t[draft id]."""

    def __init__(self, config: HeadConfig):
        super().__init__()
        self.config = config
        self.fc = nn.Linear(3 * config.hidden_size, config.hidden_size, bias=False)
        self.midlayer = Layer(config)
        self.norm = nn.RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.lm_head = nn.Linear(config.hidden_size, config.draft_vocab_size, bias=False)
        self.register_buffer("d2t", torch.zeros(config.draft_vocab_size, dtype=torch.int64))
        self.register_buffer("t2d", torch.zeros(config.vocab_size, dtype=torch.bool))

    def set_draft_vocabulary(self, target_ids: Tensor, target: Qwen3MoeForCausalLM) -> None:
        """Use sorted ``target_ids`` [Vd] and start the output rows from those of the target."""
        self.d2t.copy_(target_ids - torch.arange(len(target_ids)))
        self.t2d.zero_()[target_ids] = True
        self.lm_head.weight.data.copy_(target.lm_head.weight.data[target_ids])

    def draft_target_ids(self) -> Tensor:
        """Target ids of the draft vocabulary, int64 [Vd]."""
        return self.d2t + torch.arange(self.config.draft_vocab_size)

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits over the draft vocabulary, [..., Vd], from hidden states [..., D]."""
        return self.lm_head(self.norm(hidden))


def target_features(
    target: Qwen3MoeForCausalLM, aux_layer_ids: tuple[int, ...], **inputs: Tensor
) -> tuple[Tensor, Tensor]:
    """Run the target; returns features [B, T, F] and logits [B, T, V]."""
    output = target(**inputs, output_hidden_states=True, use_cache=False)
    states = [output.hidden_states[layer + 1] for layer in aux_layer_ids]
    return torch.cat(states, dim=-1), output.logits


def config_json(config: HeadConfig) -> dict:
    """Build the ``config.json`` of the common format."""
    return {
        "architectures": ["LlamaForCausalLMEagle3"],
        "model_type": "llama",
        "hidden_size": config.hidden_size,
        "target_hidden_size": config.hidden_size,
        "intermediate_size": config.intermediate_size,
        "num_hidden_layers": 1,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_theta": config.rope_theta,
        "max_position_embeddings": config.max_positions,
        "vocab_size": config.vocab_size,
        "draft_vocab_size": config.draft_vocab_size,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": list(config.aux_layer_ids),
            "use_aux_hidden_state": True,
        },
    }


def save_head(head: Eagle3Head, folder: Path) -> None:
    """Write ``config.json`` and ``model.safetensors``, floating-point tensors in bfloat16."""
    folder.mkdir(parents=True, exist_ok=True)
    tensors = {
        name: (tensor.bfloat16() if tensor.is_floating_point() else tensor).contiguous()
        for name, tensor in head.state_dict().items()
    }
    save_file(tensors, str(folder / "model.safetensors"), metadata={"format": "pt"})
    text = json.dumps(config_json(head.config), indent=2)
    (folder / "config.json").write_text(text + "\n")


def load_head(folder: Path) -> Eagle3Head:
    """Read a head written by ``save_head``, in float32."""
    raw = json.loads((folder / "config.json").read_text())
    config = HeadConfig(
        vocab_size=raw["vocab_size"],
        draft_vocab_size=raw["draft_vocab_size"],
        hidden_size=raw["hidden_size"],
        intermediate_size=raw["intermediate_size"],
        num_heads=raw["num_attention_heads"],
        num_kv_heads=raw["num_key_value_heads"],
        head_dim=raw["head_dim"],
        rope_theta=raw["rope_theta"],
        rms_norm_eps=raw["rms_norm_eps"],
        aux_layer_ids=tuple(raw["eagle_config"]["eagle_aux_hidden_state_layer_ids"]),
        max_positions=raw["max_position_embeddings"],
    )
    head = Eagle3Head(config)
    head.load_state_dict(load_file(str(folder / "model.safetensors")), strict=True)
    return head.eval()
