"""The experts of a model and nothing else, run for routing that is given: real bytes, real compute.

The weights may be random. Hidden states go from layer to layer as in a model without attention, so
that every result is used and a slot that holds no weights shows.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from transformers import Qwen3MoeConfig

from specfit.backends.device import Device
from specfit.backends.expert_layout import ExpertLayout, PlainLayout
from specfit.backends.experts_compiled import make_experts
from specfit.backends.file_bank import Bank
from specfit.backends.tiers import HostBank, make_store
from specfit.core.cache import ExpertCache
from specfit.core.cache.ahead import AheadOfPass
from specfit.core.errors import BackendError, InvalidInputError
from specfit.core.passes import PassRunner, RanPass

NUM_STATES = 512
"""Different hidden states that tokens enter with."""


class ForcedExperts(PassRunner):
    """Runs passes over a store of experts.

    Parameters
    ----------
    bank : Tensor or FileBank [L, E, B]
        The experts, in memory or on disk.
    device : Device
        Where they are computed, and how they get there.
    cache : ExpertCache
        Allocated for the bank's shape.
    hidden_size : int
        Hidden size D.
    layout : ExpertLayout, optional
        How experts lie in their blocks; by default as they are, in the bank's type.
    host : HostBank, optional
        Host memory between the device and the file that is the bank.

    Raises
    ------
    InvalidInputError
        The bank does not fit the cache or the hidden size.
    """

    def __init__(
        self,
        bank: Bank,
        device: Device,
        cache: ExpertCache,
        hidden_size: int,
        layout: ExpertLayout | None = None,
        host: HostBank | None = None,
    ) -> None:
        geometry, (layers, experts, block) = cache.geometry, bank.shape
        if (layers, experts) != (geometry.num_layers, geometry.num_experts):
            raise InvalidInputError(
                f"the cache is for {geometry.num_layers} layers of {geometry.num_experts} experts; "
                f"the bank has {layers} of {experts}."
            )
        layout = layout or PlainLayout(bank.dtype)
        num_weights = layout.kept.num_weights(block * bank.dtype.itemsize)
        if num_weights % (3 * hidden_size):
            raise InvalidInputError(
                f"gate, up and down are a multiple of 3 hidden sizes; got {num_weights} "
                f"weights and hidden_size = {hidden_size}."
            )
        config = Qwen3MoeConfig(
            hidden_size=hidden_size, moe_intermediate_size=num_weights // (3 * hidden_size)
        )
        self.cache = cache
        self.host = None if host is None else host.cache
        self.store = make_store(bank, device, cache, host)
        self._ahead = AheadOfPass(geometry)
        self._layout = layout
        self._experts = [make_experts(i, self.store, layout, config, F.silu) for i in range(layers)]
        drawn = torch.randn(NUM_STATES, hidden_size, generator=torch.Generator().manual_seed(1))
        self._states = drawn.to(device.torch_device, getattr(torch, layout.kept.dtype))

    @property
    def device(self) -> Device:
        """Where the experts are computed."""
        return self.store.device

    def reset(self) -> None:
        """See `PassRunner.reset`."""
        self.store.reset()
        self._ahead = AheadOfPass(self.cache.geometry)

    def prefetch(self, wanted: NDArray[np.float32]) -> None:
        """See `PassRunner.prefetch`."""
        self.store.bring_ahead(self._ahead.fetch(wanted, self.cache))

    @torch.inference_mode()
    def run(self, routing: NDArray[np.int16]) -> RanPass:
        """See `PassRunner.run`."""
        started, stalled = self.clock(), self.device.counters.stall_s
        self.store.begin_pass()
        hidden = self._states[torch.arange(len(routing)) % NUM_STATES]  # [n, D]
        weights = hidden.new_full(routing.shape[::2], 1 / routing.shape[2])  # [n, K]
        for layer, experts in enumerate(self._experts):
            chosen = torch.from_numpy(routing[:, layer].astype(np.int64))
            update = experts(hidden, chosen.to(hidden.device), weights)
            hidden = F.rms_norm(hidden + update, hidden.shape[-1:])
        self.store.end_pass()
        if not bool(hidden.isfinite().all()):
            raise BackendError("an expert's output is not finite: its weights are damaged.")
        counts = self.store.counts
        num_prefetched, num_wasted = self._ahead.take(routing)
        stall_s = self.device.counters.stall_s - stalled
        return RanPass(
            counts=counts,
            stall_s=stall_s,
            compute_s=self.clock() - started - stall_s,
            num_prefetched=num_prefetched,
            num_wasted=num_wasted,
            num_reads=int(counts.num_reads.sum()),
        )

    def clock(self) -> float:
        """See `PassRunner.clock`."""
        return time.perf_counter()

    def describe(self) -> dict[str, Any]:
        """See `PassRunner.describe`."""
        return {
            "device": self.device.name,
            "link": self.device.describe_link(),
            "precision": self._layout.kept.name,
            "weights": "experts only; random unless said otherwise",
            "threads": torch.get_num_threads(),
            "torch": torch.__version__,
        }
