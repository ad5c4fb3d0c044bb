"""Weights that are no numbers: the error names their layer, and the next request works."""

from __future__ import annotations

import pytest

from specfit.core.errors import BackendError
from specfit.policies.autoregressive import Autoregressive
from tests.unit.backends.models import decode, random_backend, stock_text
from tests.unit.backends.test_torch_backend import REQUEST


@pytest.mark.parametrize("layer", [0, 2, 3])
def test_the_layer_of_a_damaged_expert_is_named(layer: int) -> None:
    with random_backend("lru:100%") as backend:
        block = backend._store.bank[layer]
        good = block.clone()
        block.fill_(float("nan"))
        with pytest.raises(BackendError, match=rf"not finite\..* in layer {layer}\."):
            backend.start(REQUEST)
        block.copy_(good)
        assert decode(backend, Autoregressive(), REQUEST).tokens == stock_text(REQUEST)
