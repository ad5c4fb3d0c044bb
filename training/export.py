"""Writes a trained target in the Qwen3-MoE checkpoint layout: bf16, one tensor an expert."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path

import torch
from transformers import Qwen3MoeForCausalLM


def config_json(model: Qwen3MoeForCausalLM) -> dict:
    """Build ``config.json`` with the keys that the Qwen3-MoE releases use."""
    config = model.config
    return {
        "architectures": ["Qwen3MoeForCausalLM"],
        "model_type": "qwen3_moe",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "decoder_sparse_step": 1,
        "eos_token_id": config.eos_token_id,
        "head_dim": config.head_dim,
        "hidden_act": "silu",
        "hidden_size": config.hidden_size,
        "initializer_range": config.initializer_range,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_position_embeddings,
        "mlp_only_layers": [],
        "moe_intermediate_size": config.moe_intermediate_size,
        "norm_topk_prob": config.norm_topk_prob,
        "num_attention_heads": config.num_attention_heads,
        "num_experts": config.num_experts,
        "num_experts_per_tok": config.num_experts_per_tok,
        "num_hidden_layers": config.num_hidden_layers,
        "num_key_value_heads": config.num_key_value_heads,
        "output_router_logits": False,
        "pad_token_id": config.pad_token_id,
        "rms_norm_eps": config.rms_norm_eps,
        "rope_scaling": None,
        "rope_theta": config.rope_parameters["rope_theta"],
        "router_aux_loss_coef": config.router_aux_loss_coef,
        "sliding_window": None,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "use_sliding_window": False,
        "vocab_size": config.vocab_size,
    }


def export_target(checkpoint: Path, tokenizer: Path, out: Path) -> None:
    """Write weights, configuration, generation settings and tokenizer to ``out``."""
    model = Qwen3MoeForCausalLM.from_pretrained(checkpoint, dtype=torch.bfloat16)
    model.save_pretrained(out)
    (out / "config.json").write_text(json.dumps(config_json(model), indent=2) + "\n")
    eos = model.config.eos_token_id
    generation = {
        "eos_token_id": [eos],
        "pad_token_id": eos,
        "do_sample": True,
        "temperature": 0.7,
        "top_k": 0,
        "top_p": 1.0,
    }
    (out / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copyfile(tokenizer / name, out / name)


def main() -> None:
    """Parse the arguments and export."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, required=True, help="folder of the checkpoint")
    parser.add_argument("--tokenizer", type=Path, required=True, help="folder of tokenizer.json")
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    args = parser.parse_args()
    export_target(args.checkpoint, args.tokenizer, args.out)


if __name__ == "__main__":
    main()
