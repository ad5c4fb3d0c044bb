"""Shapes of published models, against the sizes of their checkpoints."""

from __future__ import annotations

import json

import pytest

from specfit.core.shapes import KNOWN_SHAPES, QWEN3_30B_A3B
from specfit.sim.synth import parameters
from tests.sources import ROOT


def test_a_token_of_qwen3_needs_384_experts_of_nine_mebibytes() -> None:
    assert QWEN3_30B_A3B.experts_of_token == 384
    assert QWEN3_30B_A3B.expert_bytes("bfloat16") == 9 * 2**20
    assert QWEN3_30B_A3B.expert_bytes("float32") == 18 * 2**20


@pytest.mark.parametrize("name", KNOWN_SHAPES)
def test_the_geometry_repeats_the_shape(name: str) -> None:
    shape = KNOWN_SHAPES[name]
    geometry = shape.geometry("bfloat16")
    assert geometry.num_layers * geometry.experts_per_token == shape.experts_of_token
    assert geometry.num_experts == shape.num_experts
    assert geometry.vocab_size == shape.vocab_size


def test_the_configuration_of_the_synthetic_model_is_the_shape_of_qwen3() -> None:
    written = json.loads((ROOT / "specfit/data/synth/config.json").read_text("utf-8"))
    for key in ("num_hidden_layers", "num_experts", "num_experts_per_tok"):
        assert written[key] == getattr(QWEN3_30B_A3B, key)
    assert written["vocab_size"] == parameters.QWEN3_30B_A3B.vocab_size
