"""The experts module that stands in for the stock one: same call, same sums, weights from slots.

The routing ids come from the stock router through the module call; nothing is routed anew here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from specfit.backends.store import ExpertStore, Wave


class OffloadedExperts(nn.Module):
    """Computes one layer's experts over slots.

    Each (token, expert) pair is computed with its expert's own rows, whatever wave it comes in, and
    a token's pairs are summed once in top-k order. So the result does not depend on residency.

    Parameters
    ----------
    layer : int
        Index of the MoE layer.
    store : ExpertStore
        Provides experts in slots; replaced by `use_store`.
    activation : callable
        The model's gate activation.
    hidden_size, intermediate_size : int
        Sizes D and I of an expert's projections.
    """

    def __init__(
        self,
        layer: int,
        store: ExpertStore,
        activation: Callable[[Tensor], Tensor],
        hidden_size: int,
        intermediate_size: int,
    ) -> None:
        super().__init__()
        self.layer = layer
        self.activation = activation
        self.hidden_size = hidden_size
        self.intermediate_size = intermediate_size
        self.routing: NDArray[np.int64] | None = None  # [T, K] of the last call
        self.use_store(store)

    def use_store(self, store: ExpertStore) -> None:
        """Take experts from this store from now on."""
        pool = store.pools[self.layer]
        split = 2 * self.intermediate_size * self.hidden_size
        up = pool[:, :split].view(-1, 2 * self.intermediate_size, self.hidden_size)
        down = pool[:, split:].view(-1, self.hidden_size, self.intermediate_size)
        self.store = store
        self._pools = up.transpose(1, 2), down.transpose(1, 2)
        self._gate_up = list(up.transpose(1, 2).unbind(0))  # S x [D, 2 I]
        self._down = list(down.transpose(1, 2).unbind(0))  # S x [I, D]

    def forward(self, hidden_states: Tensor, top_k_index: Tensor, top_k_weights: Tensor) -> Tensor:
        """Return the weighted sum of each token's experts.

        Parameters
        ----------
        hidden_states : Tensor [T, D]
            Input of the layer's experts.
        top_k_index : int64 Tensor [T, K]
            The router's choice.
        top_k_weights : Tensor [T, K]
            The router's weights.
        """
        self.routing = self.store.device.fetch(top_k_index).numpy()
        pair_experts = self.routing.reshape(-1)  # [T * K]
        counts = np.bincount(pair_experts, minlength=self.store.geometry.num_experts)
        order = np.argsort(pair_experts, kind="stable")  # pairs, grouped by expert
        needed = np.flatnonzero(counts)
        outputs = hidden_states.new_empty(len(order), self.hidden_size)
        for wave in self.waves(counts):
            is_all = len(wave.experts) == len(needed)
            pairs = order if is_all else order[np.isin(pair_experts[order], wave.experts)]
            places = torch.from_numpy(pairs).to(hidden_states.device)
            self._compute(hidden_states, places, counts, wave, outputs)
        weighted = outputs.view(*top_k_index.shape, -1) * top_k_weights.unsqueeze(-1)
        return weighted.sum(dim=1)  # [T, D]

    def waves(self, counts: NDArray[np.int64]) -> Iterator[Wave]:
        """Yield the experts that a pass needs in slots; counts, int64[E], are tokens an expert."""
        self.store.cache.note_tokens(self.layer, counts)
        return self.store.waves(self.layer, np.flatnonzero(counts))

    def _compute(
        self, hidden: Tensor, pairs: Tensor, counts: NDArray[np.int64], wave: Wave, outputs: Tensor
    ) -> None:
        """Write the outputs of the wave's pairs, which are grouped by expert."""
        rows = hidden.index_select(0, pairs // (len(outputs) // len(hidden)))
        outputs.index_copy_(0, pairs, self.multiply(rows, counts[wave.experts], wave.slots))

    def multiply(self, rows: Tensor, sizes: NDArray[np.int64], slots: NDArray[np.int64]) -> Tensor:
        """Return the experts' outputs of rows [P, D] that are grouped by expert.

        Parameters
        ----------
        sizes, slots : int64[u]
            Rows of each expert, which sum to P, and where it is.
        """
        multiply = self._multiply_grouped if is_grouped(rows) else self._multiply_each
        return multiply(rows, sizes, slots)

    def _multiply_each(
        self, rows: Tensor, sizes: NDArray[np.int64], slots: NDArray[np.int64]
    ) -> Tensor:
        """Return the experts' outputs of rows that are grouped by expert, one product a slot."""
        parts, places = sizes.tolist(), slots.tolist()
        gate_up = rows.new_empty(len(rows), 2 * self.intermediate_size)
        for slot, source, target in zip(
            places, rows.split(parts), gate_up.split(parts), strict=True
        ):
            torch.mm(source, self._gate_up[slot], out=target)
        gate, up = gate_up.chunk(2, dim=-1)
        inner = self.activation(gate) * up
        results = torch.empty_like(rows)
        for slot, source, target in zip(
            places, inner.split(parts), results.split(parts), strict=True
        ):
            torch.mm(source, self._down[slot], out=target)
        return results

    def _multiply_grouped(
        self, rows: Tensor, sizes: NDArray[np.int64], slots: NDArray[np.int64]
    ) -> Tensor:
        """Return what `_multiply_each` does in two launches, whose groups are the layer's slots."""
        by_slot = np.argsort(slots)
        starts = np.cumsum(sizes) - sizes
        order = np.concatenate([np.arange(starts[i], starts[i] + sizes[i]) for i in by_slot])
        ends = np.zeros(len(self._gate_up), np.int32)
        ends[slots] = sizes
        offsets = torch.from_numpy(np.cumsum(ends, dtype=np.int32)).to(rows.device)
        places = torch.from_numpy(order).to(rows.device)
        gate_up = F.grouped_mm(rows.index_select(0, places), self._pools[0], offs=offsets)
        gate, up = gate_up.chunk(2, dim=-1)
        products = F.grouped_mm(self.activation(gate) * up, self._pools[1], offs=offsets)
        return torch.empty_like(rows).index_copy_(0, places, products)


def is_grouped(rows: Tensor) -> bool:
    """Return whether products are taken in groups: where a launch costs more than a product."""
    return rows.is_cuda and rows.dtype == torch.bfloat16
