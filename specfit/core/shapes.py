"""Shapes of mixture-of-experts models: the numbers of their configuration, and what follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from specfit.core.expert_format import ExpertFormat

if TYPE_CHECKING:
    from specfit.core.experts import ModelGeometry


@dataclass(frozen=True, kw_only=True)
class ModelShape:
    """Shape constants of a Qwen3-MoE model, named as in its ``config.json``.

    Parameters
    ----------
    hidden_size, num_hidden_layers, vocab_size : int
        Width (D), layers, all of which have experts (L), and vocabulary (V).
    num_attention_heads, num_key_value_heads, head_dim : int
        Of attention.
    num_experts, num_experts_per_tok, moe_intermediate_size : int
        Experts of a layer (E), those of a token (K), and the width inside one.
    """

    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int
    num_experts: int
    num_experts_per_tok: int
    moe_intermediate_size: int
    vocab_size: int

    @property
    def experts_of_token(self) -> int:
        """Experts that a token needs in all layers together."""
        return self.num_hidden_layers * self.num_experts_per_tok

    def expert_bytes(self, dtype: str, experts: str | None = None) -> int:
        """Return the size of one expert in a format; see `ExpertFormat.parse`."""
        kept = ExpertFormat.parse(experts, dtype)
        return kept.expert_bytes(self.hidden_size, self.moe_intermediate_size)

    def geometry(self, dtype: str, experts: str | None = None) -> ModelGeometry:
        """Return what caches and cost models need, with experts in a format."""
        from specfit.core.experts import ModelGeometry  # `specfit --help` needs no numpy

        return ModelGeometry(
            num_layers=self.num_hidden_layers,
            num_experts=self.num_experts,
            experts_per_token=self.num_experts_per_tok,
            expert_bytes=self.expert_bytes(dtype, experts),
            vocab_size=self.vocab_size,
        )


QWEN3_30B_A3B = ModelShape(
    hidden_size=2048,
    num_hidden_layers=48,
    num_attention_heads=32,
    num_key_value_heads=4,
    head_dim=128,
    num_experts=128,
    num_experts_per_tok=8,
    moe_intermediate_size=768,
    vocab_size=151936,
)
QWEN3_235B_A22B = ModelShape(
    hidden_size=4096,
    num_hidden_layers=94,
    num_attention_heads=64,
    num_key_value_heads=4,
    head_dim=128,
    num_experts=128,
    num_experts_per_tok=8,
    moe_intermediate_size=1536,
    vocab_size=151936,
)
KNOWN_SHAPES = {"qwen3-30b-a3b": QWEN3_30B_A3B, "qwen3-235b-a22b": QWEN3_235B_A22B}
"""Shapes of published checkpoints by name, from their configurations."""
