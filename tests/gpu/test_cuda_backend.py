"""On a CUDA device the backend keeps the contracts, and says what it says on the CPU."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import numpy as np
import torch

from specfit.backends import experts, load
from specfit.backends.cuda import CudaDevice
from specfit.backends.torch_backend import TorchBackend
from specfit.core.backend import Request
from specfit.policies.autoregressive import Autoregressive
from specfit.policies.eagle3 import Eagle3
from specfit.testing.backend_contract import BackendContract
from specfit.testing.device_contract import DeviceContract
from tests.unit.backends.models import PROMPT, decode, random_backend, random_model
from tests.unit.backends.test_experts import draw, make_experts

pytestmark = pytest.mark.gpu
REQUEST = Request(PROMPT, 40)


class TestCudaDevice(DeviceContract):
    make = staticmethod(lambda link=None: CudaDevice())


class TestCudaBackend(BackendContract):
    """B7, equality to the bit whatever is resident, is measured below and not asserted here."""

    make = staticmethod(lambda cache="lru:50%": random_backend(cache, device="cuda"))

    def test_b7_offloading_is_invisible(self) -> None:
        """The text does not depend on what is resident."""
        texts = {
            decode(self.make(c), Eagle3(3, 2, 8), REQUEST).tokens for c in ("none", "lru:100%")
        }
        assert len(texts) == 1


def test_devices_agree_in_float32() -> None:
    """B9: greedy texts are equal, and the margins close."""
    torch.backends.cuda.matmul.allow_tf32 = False
    for policy in (Autoregressive(), Eagle3(3, 2, 8)):
        cpu, gpu = (decode(random_backend(device=d), policy, REQUEST) for d in ("cpu", "cuda"))
        assert gpu.tokens == cpu.tokens
        for ours, theirs in zip(gpu.cycles, cpu.cycles, strict=True):
            np.testing.assert_allclose(
                ours.outcome.verification.margins,
                theirs.outcome.verification.margins,
                atol=1e-3,
            )


def test_slots_hold_the_hosts_bytes() -> None:
    with random_backend("lru:4", device="cuda") as backend:
        store = backend._store
        decode(backend, Eagle3(3, 2, 8), REQUEST)
        for layer, pool in enumerate(store.pools):
            slots = store.cache.slot_of(layer)
            resident = np.flatnonzero(slots >= 0)
            assert torch.equal(pool[slots[resident]].cpu(), store.bank[layer, resident])


def test_the_bank_is_pinned() -> None:
    device = CudaDevice()
    bank = device.allocate_host((2, 8, 2**18), torch.float32)
    assert device.describe_link()["unpinned_bytes"] == 0
    assert bank.is_pinned()
    device.close()


def test_grouped_products_are_the_single_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden, index, weights = draw(33)
    expected = make_experts("lru:100%").to(torch.bfloat16)(hidden, index, weights)
    with load(random_model()[0], device="cuda", dtype="bfloat16", cache="lru:100%") as backend:
        module = backend._target.model.model.layers[1].mlp.experts
        inputs = hidden.cuda().bfloat16(), index.cuda(), weights.cuda().bfloat16()
        assert experts.is_grouped(inputs[0])
        found = module(*inputs).float().cpu()
    torch.testing.assert_close(found, expected, atol=0.05, rtol=0.05)


def test_too_large_a_cache_is_an_error_that_names_sizes() -> None:
    from specfit.core.errors import BackendError

    with pytest.raises(BackendError, match="GiB free"):
        CudaDevice().allocate((2**50,), torch.float32)


def test_after_a_request_the_memory_is_free() -> None:
    before = torch.cuda.memory_allocated()
    backend: TorchBackend = random_backend("lru:100%", device="cuda")
    decode(backend, Autoregressive(), REQUEST)
    backend.close()
    del backend
    torch.cuda.empty_cache()
    assert torch.cuda.memory_allocated() <= before + 2**20
