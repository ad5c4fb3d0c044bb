"""The target's key-value cache, which can keep scattered tree nodes, and the mask of a tree.

Keys are stored after rotary embedding at the node's own position, and an accepted path lies in
consecutive positions, so keeping it is a gather of rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from specfit.core.errors import BackendError

INITIAL_ROWS = 1024


class KvLayer(CacheLayerMixin):
    """Keys and values of one layer in preallocated memory that doubles when it is full."""

    is_sliding = False
    is_croppable = True

    def __init__(self) -> None:
        super().__init__()
        self.num_rows = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        """Allocate; the states give batch, heads and width."""
        batch, heads, rows, width = key_states.shape
        shape = (batch, heads, max(INITIAL_ROWS, rows), width)
        self.keys, self.values = key_states.new_empty(shape), value_states.new_empty(shape)
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append rows [1, H, q, d] and return all of them, [1, H, rows, d]."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        first, last = self.num_rows, self.num_rows + key_states.shape[2]
        if last > self.keys.shape[2]:
            self._grow(last)
        self.keys[:, :, first:last] = key_states
        self.values[:, :, first:last] = value_states
        self.num_rows = last
        return self.keys[:, :, :last], self.values[:, :, :last]

    def keep(self, base: int, rows: Tensor) -> None:
        """Keep the first `base` rows and, behind them, the given rows; drop the rest."""
        last = base + len(rows)
        self.keys[:, :, base:last] = self.keys.index_select(2, rows)
        self.values[:, :, base:last] = self.values.index_select(2, rows)
        self.num_rows = last

    def truncate(self, num_rows: int) -> None:
        """Keep the first `num_rows` rows."""
        self.num_rows = min(self.num_rows, num_rows)

    def is_finite(self) -> bool:
        """Return whether every key and value that is kept is a number."""
        kept = self.keys[:, :, : self.num_rows], self.values[:, :, : self.num_rows]
        return all(bool(rows.isfinite().all()) for rows in kept)

    def get_seq_length(self) -> int:
        """Return the number of rows."""
        return self.num_rows

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return the keys that a pass of `query_length` tokens sees, and the first one's index."""
        return self.num_rows + query_length, 0

    def get_max_length(self) -> int:
        """Return -1: there is no limit."""
        return -1

    def _grow(self, rows: int) -> None:
        old_keys, old_values = self.keys, self.values
        shape = (*old_keys.shape[:2], max(rows, 2 * old_keys.shape[2]), old_keys.shape[3])
        self.keys, self.values = old_keys.new_empty(shape), old_values.new_empty(shape)
        self.keys[:, :, : self.num_rows] = old_keys[:, :, : self.num_rows]
        self.values[:, :, : self.num_rows] = old_values[:, :, : self.num_rows]


class KvCache(Cache):
    """One `KvLayer` a layer, all of the same length between passes."""

    def __init__(self, num_layers: int) -> None:
        super().__init__(layers=[KvLayer() for _ in range(num_layers)])

    @property
    def num_rows(self) -> int:
        """Tokens whose keys and values are kept."""
        return self.layers[0].num_rows

    def keep(self, base: int, offsets: NDArray[np.intp]) -> None:
        """Keep the first `base` rows and the rows ``base + offsets``; drop the rest."""
        if (offsets == np.arange(len(offsets))).all():
            self.truncate(base + len(offsets))
            return
        rows = torch.from_numpy(base + offsets).to(self.layers[0].keys.device)
        for layer in self.layers:
            layer.keep(base, rows)

    def truncate(self, num_rows: int) -> None:
        """Keep the first `num_rows` rows of every layer."""
        for layer in self.layers:
            layer.truncate(num_rows)


def tree_mask(ancestors: NDArray[np.bool_], num_rows: int, attention: str) -> Tensor:
    """Return the mask with which each node sees the committed text, its ancestors and itself.

    Parameters
    ----------
    ancestors : bool[n, n]
        Whether node j lies on the path to node i, itself included.
    num_rows : int
        Committed tokens in the cache.
    attention : str
        Attention implementation of transformers: ``sdpa`` takes booleans, ``eager`` an additive
        float32 mask; either given the other's mask computes something else without an error.

    Returns
    -------
    Tensor [1, 1, n, num_rows + n]

    Raises
    ------
    BackendError
        The implementation takes no mask of this kind.
    """
    n = len(ancestors)
    mask = np.ones((n, num_rows + n), bool)
    mask[:, num_rows:] = ancestors
    visible = torch.from_numpy(mask)[None, None]
    if attention == "sdpa":
        return visible
    if attention == "eager":
        hidden = torch.finfo(torch.float32).min
        return torch.zeros(visible.shape).masked_fill_(~visible, hidden)
    raise BackendError(f"attention '{attention}' cannot verify a tree. Use 'sdpa' or 'eager'.")
