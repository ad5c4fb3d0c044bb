"""4-bit checkpoints with random weights, as their writers lay them out, and what they stand for."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from transformers import Qwen3MoeForCausalLM

from specfit.backends.int4_matrix import Int4Matrix, quantize
from tests.unit.backends.models import make_head, make_target

SIZE = 32
GROUP = 32
Writer = Callable[[str, Int4Matrix], dict[str, torch.Tensor]]


@cache
def int4_model() -> tuple[Path, Qwen3MoeForCausalLM]:
    """Return the folder of a random target whose experts can be quantised, and the stock model."""
    folder = Path(mkdtemp(prefix="specfit-test-int4-"))
    model = make_target(folder, moe_intermediate_size=SIZE)
    make_head(folder / "eagle3")
    return folder, model


def rounded_experts(model: Qwen3MoeForCausalLM, group_size: int = GROUP) -> dict[str, torch.Tensor]:
    """Return the model's weights, its experts replaced by what their codes stand for."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    for name, tensor in state.items():
        if ".experts." in name:
            for matrix in tensor:
                matrix.copy_(quantize(matrix, group_size, torch.float32).numbers())
    return state


def words(codes: torch.Tensor) -> torch.Tensor:
    """Return codes [R, C], eight to a word, the first lowest, int32[R, C / 8]."""
    parts = codes.long().view(len(codes), -1, 8) << torch.arange(8) * 4
    total = parts.sum(dim=-1)
    return torch.where(total >= 2**31, total - 2**32, total).int()


def gptq(name: str, matrix: Int4Matrix) -> dict[str, torch.Tensor]:
    """Return a matrix with the zeros at code 8, as GPTQ's first format writes it."""
    points = torch.full((matrix.scales.shape[1], matrix.scales.shape[0]), 7, dtype=torch.uint8)
    return {
        f"{name}.qweight": words(matrix.codes).t().contiguous(),
        f"{name}.qzeros": words(points),
        f"{name}.scales": matrix.scales.t().half().contiguous(),
        f"{name}.g_idx": torch.arange(matrix.codes.shape[1], dtype=torch.int32)
        // matrix.group_size,
    }


def compressed(name: str, matrix: Int4Matrix) -> dict[str, torch.Tensor]:
    """Return a matrix as compressed-tensors writes it."""
    return {
        f"{name}.weight_packed": words(matrix.codes),
        f"{name}.weight_scale": matrix.scales.clone(),
        f"{name}.weight_shape": torch.tensor(matrix.codes.shape),
    }


WRITERS: dict[str, Writer] = {"gptq": gptq, "compressed-tensors": compressed}
CONFIGS: dict[str, dict[str, Any]] = {
    "gptq": {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": GROUP,
        "desc_act": False,
        "sym": True,
    },
    "compressed-tensors": {
        "quant_method": "compressed-tensors",
        "format": "pack-quantized",
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": {
                    "num_bits": 4,
                    "type": "int",
                    "strategy": "group",
                    "group_size": GROUP,
                    "symmetric": True,
                    "actorder": None,
                },
            }
        },
        "ignore": ["lm_head", "re:.*mlp.gate$"],
    },
}


def write_quantized(method: str, folder: Path) -> Qwen3MoeForCausalLM:
    """Write a 4-bit checkpoint of experts and attention; return the stock model it stands for."""
    make_target(folder, moe_intermediate_size=SIZE)
    tensors, written = load_file(folder / "model.safetensors"), {}
    for name, tensor in list(tensors.items()):
        if "_proj.weight" not in name:
            written[name] = tensor
            continue
        matrix = symmetric(tensor)
        tensors[name] = matrix.numbers()
        written |= WRITERS[method](name.removesuffix(".weight"), matrix)
    plain = folder / "plain"
    plain.mkdir()
    (plain / "config.json").write_text((folder / "config.json").read_text())
    save_file(tensors, str(plain / "model.safetensors"), {"format": "pt"})
    save_file(written, str(folder / "model.safetensors"), {"format": "pt"})
    raw = json.loads((folder / "config.json").read_text())
    raw["quantization_config"] = CONFIGS[method]
    (folder / "config.json").write_text(json.dumps(raw))
    return Qwen3MoeForCausalLM.from_pretrained(plain, dtype=torch.float32).eval()


def symmetric(numbers: torch.Tensor) -> Int4Matrix:
    """Return codes around 8 with scales that half precision holds."""
    groups = numbers.float().view(len(numbers), -1, GROUP)
    scales = (groups.abs().amax(dim=-1) / 7).half().float()
    codes = (groups / scales[..., None]).round().clamp(-8, 7) + 8
    return Int4Matrix(codes.to(torch.uint8).view(numbers.shape), scales, torch.zeros_like(scales))
