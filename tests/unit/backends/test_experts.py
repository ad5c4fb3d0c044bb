"""The experts module: the stock module's sums, and the same bits whatever is resident."""

from __future__ import annotations

import pytest
import torch

from specfit.backends.cpu import CpuDevice
from specfit.backends.expert_layout import PlainLayout
from specfit.backends.experts import OffloadedExperts
from specfit.backends.experts_compiled import MOST_PAIRS, MOST_WEIGHTS, CompiledExperts
from specfit.backends.experts_compiled import make_experts as choose_experts
from specfit.backends.store import ExpertStore
from specfit.core.cache import make_cache
from specfit.core.experts import ModelGeometry
from tests.unit.backends.models import EXPERTS, LAYERS, SIZE, TOP_K, D, V, late_device, random_model

PLAIN = PlainLayout(torch.float32)
GEOMETRY = ModelGeometry(LAYERS, EXPERTS, TOP_K, 4 * 3 * SIZE * D, V)


KINDS = [OffloadedExperts, CompiledExperts]


def make_experts(
    spec: str, kind: type[OffloadedExperts] = OffloadedExperts, layer: int = 1
) -> OffloadedExperts:
    _, model = random_model()
    bank = torch.stack(
        [
            torch.cat(
                [x.mlp.experts.gate_up_proj.flatten(1), x.mlp.experts.down_proj.flatten(1)], 1
            )
            for x in model.model.layers
        ]
    ).detach()
    store = ExpertStore(bank, late_device(), make_cache(spec, GEOMETRY), GEOMETRY)
    return kind(layer, store, torch.nn.functional.silu, D, SIZE)


def draw(num_tokens: int, key: int = 0) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(key)
    hidden = torch.randn(num_tokens, D, generator=generator)
    scores = torch.rand(num_tokens, EXPERTS, generator=generator)
    weights, index = scores.topk(TOP_K)
    return hidden, index, weights


@pytest.mark.parametrize("num_tokens", [1, 2, 31, 32, 33, 127, 128, 129])
@pytest.mark.parametrize("implementation", ["grouped_mm", "batched_mm"])
@pytest.mark.parametrize("kind", KINDS)
def test_equals_the_stock_module(
    num_tokens: int, implementation: str, kind: type[OffloadedExperts]
) -> None:
    stock = random_model()[1].model.layers[1].mlp.experts
    before = stock.config._experts_implementation
    stock.config._experts_implementation = implementation
    try:
        with torch.inference_mode():
            expected = stock(*draw(num_tokens))
    finally:
        stock.config._experts_implementation = before
    with torch.inference_mode():
        actual = make_experts("lru:25%", kind)(*draw(num_tokens))
    torch.testing.assert_close(actual, expected, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("spec", ["none", "lru:4", "lru:5", "lru:50%"])
@pytest.mark.parametrize("kind", KINDS)
def test_same_bits_whatever_is_resident(spec: str, kind: type[OffloadedExperts]) -> None:
    everything, some = make_experts("lru:100%", kind), make_experts(spec, kind)
    for key in range(12):
        inputs = draw(1 + 5 * key, key)
        with torch.inference_mode():
            assert torch.equal(some(*inputs), everything(*inputs))


def test_compiled_bits_do_not_depend_on_the_other_tokens() -> None:
    experts, (hidden, index, weights) = make_experts("lru:4", CompiledExperts), draw(9)
    together = experts(hidden, index, weights)
    for token in range(9):
        one = slice(token, token + 1)
        assert torch.equal(experts(hidden[one], index[one], weights[one]), together[one])


def test_the_compiled_module_is_chosen_where_it_computes_the_same() -> None:
    experts = make_experts("lru:4")
    store, config = experts.store, random_model()[1].config
    assert type(choose_experts(1, store, PLAIN, config, experts.activation)) is CompiledExperts
    config.hidden_act = "gelu"
    assert type(choose_experts(1, store, PLAIN, config, experts.activation)) is OffloadedExperts
    assert store.bank.shape[2] <= MOST_WEIGHTS
    assert 128 * TOP_K <= MOST_PAIRS < 129 * TOP_K, "the sizes above lie on both sides"


@pytest.mark.parametrize("kind", KINDS)
def test_the_routing_is_kept(kind: type[OffloadedExperts]) -> None:
    experts = make_experts("lru:4", kind)
    hidden, index, weights = draw(6)
    experts(hidden, index, weights)
    assert experts.routing is not None
    assert (experts.routing == index.numpy()).all()


@pytest.mark.parametrize("kind", KINDS)
def test_another_store_takes_over(kind: type[OffloadedExperts]) -> None:
    experts, inputs = make_experts("lru:4", kind), draw(5)
    expected = experts(*inputs)
    bank = experts.store.bank
    device = CpuDevice()
    experts.use_store(ExpertStore(bank, device, make_cache("lru:12", GEOMETRY), GEOMETRY))
    assert torch.equal(experts(*inputs), expected)
    device.close()
