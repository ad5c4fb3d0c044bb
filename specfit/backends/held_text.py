"""The text whose keys and values a backend holds, with its routing: what a request may keep."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray


class HeldText:
    """Tokens that the target has run, in order, and the experts of each."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Hold nothing."""
        self._tokens: list[int] = []
        self._routing: list[NDArray[np.int16]] = []  # [T_i, L, K], together of all tokens

    def extend(self, tokens: Sequence[int], routing: NDArray[np.int16]) -> None:
        """Hold further tokens; routing int16[T, L, K] are their experts."""
        self._tokens += tokens
        self._routing.append(routing)

    def truncate(self, num_tokens: int) -> None:
        """Hold the first `num_tokens` only."""
        self._tokens = self._tokens[:num_tokens]
        self._routing = [self.routing()[:num_tokens]] if num_tokens else []

    def routing(self) -> NDArray[np.int16]:
        """Return the experts of all tokens, int16[T, L, K]."""
        return np.concatenate(self._routing)

    def num_kept(self, prompt: Sequence[int]) -> int:
        """Return how many tokens of a prompt need not be run again.

        The common beginning but for its last token: that is run once more, since a drafter wants
        its feature together with the token behind it, and the target's answer to it is wanted too
        where it ends the prompt.
        """
        common = 0
        for ours, theirs in zip(self._tokens, prompt, strict=False):
            if ours != theirs:
                break
            common += 1
        return max(0, common - 1)

    @contextmanager
    def changing(self) -> Iterator[None]:
        """Hold nothing unless what is done meanwhile comes to its end."""
        tokens, routing = self._tokens, self._routing
        self.forget()
        yield
        self._tokens, self._routing = tokens, routing
