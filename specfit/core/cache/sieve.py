"""SIEVE: a hand moves from the oldest expert to the newest and evicts the first one not used since.

Source: Zhang et al., NSDI 2024. Departs from it where a pass needs several experts at once: those
are passed over without losing their mark, and experts loaded together count as loaded in order of
their ids.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specfit.core.cache.base import ExpertCache, IdArray, LoadPlan, caches

_NO_HAND = -1


@caches.register("sieve")
@dataclass(eq=False)
class Sieve(ExpertCache):
    """Evict in order of loading, but spare once what was used since the hand last passed."""

    def reset(self) -> None:
        """See `ExpertCache.reset`."""
        super().reset()
        self._is_marked = np.zeros((self.num_layers, self.num_experts), bool)
        self._hands = np.full(self.num_layers, _NO_HAND, np.int64)  # the expert to look at next

    def request(self, layer: int, experts: IdArray) -> LoadPlan:
        """See `ExpertCache.request`."""
        plan = super().request(layer, experts)
        self._is_marked[layer, plan.hits] = True
        self._is_marked[layer, plan.loads] = False
        return plan

    def choose_victims(self, layer: int, candidates: IdArray, count: int) -> IdArray:
        """See `ExpertCache.choose_victims`."""
        queue = self._oldest_first(layer)
        is_candidate = np.zeros(self.num_experts, bool)
        is_candidate[candidates] = True
        marks = self._is_marked[layer]
        victims: list[int] = []
        hand = self._hands[layer]
        at = queue.index(hand) if hand != _NO_HAND else 0
        while len(victims) < count:
            expert = queue[at]
            if is_candidate[expert]:
                if marks[expert]:
                    marks[expert] = False
                else:
                    victims.append(expert)
                    is_candidate[expert] = False
            at = (at + 1) % len(queue)
        self._hands[layer] = self._next_survivor(queue, at, set(victims))
        return np.sort(np.array(victims, np.int64))

    def _oldest_first(self, layer: int) -> list[int]:
        resident = np.flatnonzero(self._slots[layer] >= 0)
        order = np.argsort(self._loaded[layer, resident], kind="stable")
        return [int(expert) for expert in resident[order]]

    def _next_survivor(self, queue: list[int], at: int, victims: set[int]) -> int:
        """Return the first expert from `at` on that stays, or that the hand starts anew."""
        ahead = [expert for expert in queue[at:] if expert not in victims] if at else []
        return ahead[0] if ahead else _NO_HAND
