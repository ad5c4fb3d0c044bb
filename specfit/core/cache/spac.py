"""MoE-SpAc's activation states: a counter an expert, moved by how many tokens of a pass want it.

Source: MoE-SpAc, arXiv 2603.09983. The verified window is the sensor: with c tokens of a pass for
an expert in state s, the state rises by one where ``c - s >= up_threshold`` and falls by one where
``s - c >= down_threshold``, within 0 and `max_state`. Departs from it in using the states for
eviction alone; its prefetching and its split of hot experts between devices are left out, and
between equal states the least recently used expert leaves.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from specfit.core.cache.base import IdArray, caches
from specfit.core.cache.keyed import KeyedCache
from specfit.core.errors import InvalidInputError


@caches.register("spac")
@dataclass(eq=False)
class Spac(KeyedCache):
    """Evict the experts of the lowest activation state; of equal ones the least recently used.

    Parameters
    ----------
    max_state : int
        Highest state.
    up_threshold, down_threshold : int
        Tokens beyond the state that raise it, and short of it that lower it; 1 or more.
    """

    counts_tokens: ClassVar[bool] = True

    max_state: int = 5
    up_threshold: int = 5
    down_threshold: int = 1

    def __post_init__(self) -> None:
        for name in ("max_state", "up_threshold", "down_threshold"):
            if getattr(self, name) < 1:
                raise InvalidInputError(f"{name} must be 1 or more; got {getattr(self, name)}.")

    def reset(self) -> None:
        """See `ExpertCache.reset`."""
        super().reset()
        shape = (self.num_layers, self.num_experts)
        self._states = np.zeros(shape, np.int64)
        self._tokens = np.zeros(shape, np.int64)

    @property
    def keys(self) -> IdArray:
        """Activation state of each expert before this pass."""
        return self._states

    @property
    def ties(self) -> IdArray:
        """Number of the last request that needed each expert."""
        return self._last_used

    def note_tokens(self, layer: int, tokens: IdArray) -> None:
        """See `ExpertCache.note_tokens`."""
        self._tokens[layer] += tokens

    def end_pass(self) -> None:
        """Move the states."""
        rises = (self._tokens - self._states >= self.up_threshold) & (self._states < self.max_state)
        falls = self._states - self._tokens >= self.down_threshold
        self._states += rises.astype(np.int64) - falls
        self._tokens[:] = 0
