"""Drafting without weights: what followed the last tokens before, in the text itself.

Any checkpoint can be tried at once with it; it pays on text that repeats itself (code, quotations,
retrieved passages) and drafts nothing where it has seen nothing.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from specfit.backends.drafter import Drafter, drafters, expanded_nodes, level_of
from specfit.core.errors import InvalidInputError
from specfit.core.tree import DraftLevel, DraftPlan, DraftTree

Children = tuple[list[int], list[float], float]


@drafters.register("ngram")
@dataclass(eq=False)
class NgramDrafter(Drafter):
    """Draft what followed the longest suffix that occurred before, backing off to shorter ones.

    With C tokens seen after a suffix, c of them the token, the token has probability
    ``c / (C + escape)`` and what is left, ``escape / (C + escape)``, goes to the next shorter
    suffix: prediction by partial matching. What no suffix has seen gets nothing.

    Parameters
    ----------
    max_length : int
        Tokens of the longest suffix.
    min_length : int
        Tokens of the shortest; 0 would draft by the frequency of tokens alone.
    escape : float
        Counts that stand for tokens not seen yet.
    """

    max_length: int = 5
    min_length: int = 2
    escape: float = 0.5
    name: ClassVar[str] = "ngram"

    def __post_init__(self) -> None:
        if not 1 <= self.min_length <= self.max_length:
            raise InvalidInputError(
                f"suffix lengths must be 1 <= min_length <= max_length; got {self.min_length} and "
                f"{self.max_length}."
            )
        if not self.escape > 0:
            raise InvalidInputError(f"escape must be above 0; got {self.escape}.")
        self.reset()

    def reset(self) -> None:
        """See `Drafter.reset`."""
        self._text: list[int] = []
        self._seen: dict[tuple[int, ...], dict[int, int]] = defaultdict(lambda: defaultdict(int))

    def start(self, token: int) -> None:
        """See `Drafter.start`."""
        self._text = [token]

    def rewind(self, num_pairs: int) -> bool:
        """See `Drafter.rewind`. Counts the kept text anew."""
        if num_pairs >= len(self._text):
            return False
        first, *rest = self._text[: num_pairs + 1]
        self.reset()
        self.start(first)
        self.extend(torch.empty(len(rest), 0), rest)
        return True

    def extend(self, features: Tensor, next_tokens: list[int]) -> None:
        """See `Drafter.extend`."""
        for token in next_tokens:
            for length in range(self.min_length, self.max_length + 1):
                if length <= len(self._text):
                    self._seen[tuple(self._text[-length:])][token] += 1
            self._text.append(token)

    def draft_level(self, plan: DraftPlan, tree: DraftTree) -> DraftLevel:
        """See `Drafter.draft_level`."""
        nodes = expanded_nodes(plan, tree)
        paths = [tree.tokens[list(tree.path(node)[1:])].tolist() for node in nodes.tolist()]
        tail = self._text[-self.max_length :]
        return level_of(nodes, [self._children(tail + path, plan.top_k) for path in paths])

    def _children(self, text: list[int], top_k: int) -> Children:
        probs: dict[int, float] = defaultdict(float)
        mass = 1.0
        for length in range(min(self.max_length, len(text)), self.min_length - 1, -1):
            counts = self._seen.get(tuple(text[-length:]))
            if counts is None:
                continue
            total = sum(counts.values()) + self.escape
            for token, count in counts.items():
                probs[token] += mass * count / total
            mass *= self.escape / total
        best = sorted(probs.items(), key=lambda item: (-item[1], item[0]))[:top_k]
        entropy = -sum(p * np.log(p) for p in probs.values() if p > 0)
        return [t for t, _ in best], [p for _, p in best], max(0.0, float(entropy))
