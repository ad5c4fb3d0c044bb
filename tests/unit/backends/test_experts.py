"""The experts module: the stock module's sums, and the same bits whatever is resident."""

from __future__ import annotations

import pytest
import torch

from specfit.backends.cpu import CpuDevice
from specfit.backends.experts import OffloadedExperts
from specfit.backends.store import ExpertStore
from specfit.core.cache import make_cache
from specfit.core.experts import ModelGeometry
from tests.unit.backends.adversarial import LateDevice
from tests.unit.backends.models import EXPERTS, LAYERS, SIZE, TOP_K, D, V, random_model

GEOMETRY = ModelGeometry(LAYERS, EXPERTS, TOP_K, 4 * 3 * SIZE * D, V)


def make_experts(spec: str, layer: int = 1) -> OffloadedExperts:
    _, model = random_model()
    bank = torch.stack(
        [
            torch.cat(
                [x.mlp.experts.gate_up_proj.flatten(1), x.mlp.experts.down_proj.flatten(1)], 1
            )
            for x in model.model.layers
        ]
    ).detach()
    store = ExpertStore(bank, LateDevice(), make_cache(spec, GEOMETRY), GEOMETRY)
    return OffloadedExperts(layer, store, torch.nn.functional.silu, D, SIZE)


def draw(num_tokens: int, key: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(key)
    hidden = torch.randn(num_tokens, D, generator=generator)
    scores = torch.rand(num_tokens, EXPERTS, generator=generator)
    weights, index = scores.topk(TOP_K)
    return hidden, index, weights


@pytest.mark.parametrize("num_tokens", [1, 2, 31, 32, 33, 127, 128, 129])
@pytest.mark.parametrize("implementation", ["grouped_mm", "batched_mm"])
def test_equals_the_stock_module(num_tokens: int, implementation: str) -> None:
    stock = random_model()[1].model.layers[1].mlp.experts
    before = stock.config._experts_implementation
    stock.config._experts_implementation = implementation
    try:
        with torch.inference_mode():
            expected = stock(*draw(num_tokens))
    finally:
        stock.config._experts_implementation = before
    with torch.inference_mode():
        actual = make_experts("lru:25%")(*draw(num_tokens))
    torch.testing.assert_close(actual, expected, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("spec", ["none", "lru:4", "lru:5", "lru:50%"])
def test_same_bits_whatever_is_resident(spec: str) -> None:
    everything, some = make_experts("lru:100%"), make_experts(spec)
    for key in range(12):
        inputs = draw(1 + 5 * key, key)
        with torch.inference_mode():
            assert torch.equal(some(*inputs), everything(*inputs))


def test_the_routing_is_kept() -> None:
    experts = make_experts("lru:4")
    hidden, index, weights = draw(6)
    experts(hidden, index, weights)
    assert experts.routing is not None
    assert (experts.routing == index.numpy()).all()


def test_another_store_takes_over() -> None:
    experts, inputs = make_experts("lru:4"), draw(5)
    expected = experts(*inputs)
    bank = experts.store.bank
    device = CpuDevice()
    experts.use_store(ExpertStore(bank, device, make_cache("lru:12", GEOMETRY), GEOMETRY))
    assert torch.equal(experts(*inputs), expected)
    device.close()
