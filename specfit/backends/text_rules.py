"""What the target may say next given the text so far, node by node: processors that read the text.

The rules are those of transformers' processors of the same names. A node's text is the committed
text and the path to the node, so each row of logits is processed as it would be without drafts. The
committed text is kept as sets, so that a row costs its path and not the text.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import torch
from torch import Tensor

from specfit.core.backend import Request
from specfit.core.errors import InvalidInputError

Path = Sequence[int]
"""Tokens behind the committed text."""


class TextRules:
    """The rules of one request, and the text that they look at.

    Parameters
    ----------
    request : Request
        Its sampling names the rules; its prompt begins the text.
    vocab_size : int
        Tokens that there are.

    Raises
    ------
    InvalidInputError
        A rule names a token that there is not.
    """

    def __init__(self, request: Request, vocab_size: int) -> None:
        self._rules = rules = request.sampling
        self._num_prompt = len(request.prompt)
        self._stops = sorted(t for t in request.stop_ids if t < vocab_size)
        ends = {(token,) for token in request.stop_ids}
        self._bad_words = [word for word in rules.bad_words if word not in ends]
        self._always = [*rules.suppress_tokens, *(w[0] for w in self._bad_words if len(w) == 1)]
        _check_tokens(
            [*self._always, *rules.begin_suppress_tokens, *(t for w in self._bad_words for t in w)],
            vocab_size,
        )
        self._seen = torch.zeros(vocab_size, dtype=torch.bool)
        self._text: list[int] = []
        self._after: dict[tuple[int, ...], set[int]] = defaultdict(set)  # first tokens -> last one
        self.extend(request.prompt)

    def extend(self, tokens: Sequence[int]) -> None:
        """Take note of committed tokens."""
        if self._rules.repetition_penalty != 1:
            self._seen[list(tokens)] = True
        size = self._rules.no_repeat_ngram_size
        for token in tokens:
            self._text.append(token)
            if size and len(self._text) >= size:
                first = len(self._text) - size
                self._after[tuple(self._text[first:-1])].add(token)

    def apply(self, logits: Tensor, paths: Sequence[Path]) -> Tensor:
        """Return logits [n, V] as the rules change them; row i follows the text and `paths[i]`."""
        scores = self._penalise(logits, paths)
        banned = [self._banned(path) for path in paths]
        rows = torch.tensor([i for i, tokens in enumerate(banned) for _ in tokens])
        columns = torch.tensor([token for tokens in banned for token in tokens])
        if len(rows):
            scores = scores.clone()
            scores[rows.to(scores.device), columns.to(scores.device)] = -torch.inf
        return scores

    def _penalise(self, logits: Tensor, paths: Sequence[Path]) -> Tensor:
        penalty = self._rules.repetition_penalty
        if penalty == 1:
            return logits
        seen = self._seen.expand(len(paths), -1).clone()
        for row, path in zip(seen, paths, strict=True):
            row[list(path)] = True
        penalised = torch.where(logits < 0, logits * penalty, logits / penalty)
        return torch.where(seen.to(logits.device), penalised, logits)

    def _banned(self, path: Path) -> list[int]:
        """Return the tokens that may not follow a path."""
        rules, num_new = self._rules, len(self._text) + len(path) - self._num_prompt
        banned = [*self._always, *self._repeating(path), *self._ending_bad_words(path)]
        if num_new < rules.min_new_tokens:
            banned += self._stops
        if num_new == 0:
            banned += rules.begin_suppress_tokens
        return banned

    def _repeating(self, path: Path) -> set[int]:
        """Return the tokens that would end an n-gram of the text or the path once more."""
        size = self._rules.no_repeat_ngram_size
        if not size:
            return set()
        end = self._tail(path, size - 1 + len(path))  # all windows that reach into the path
        tail = self._tail(path, size - 1)
        found = set(self._after.get(tail, ())) if len(tail) == size - 1 else set()
        for first in range(len(end) - size + 1):
            if end[first : first + size - 1] == tail:
                found.add(end[first + size - 1])
        return found

    def _ending_bad_words(self, path: Path) -> list[int]:
        longer = [word for word in self._bad_words if len(word) > 1]
        return [w[-1] for w in longer if self._tail(path, len(w) - 1) == w[:-1]]

    def _tail(self, path: Path, count: int) -> tuple[int, ...]:
        """Return the last `count` tokens of the text and the path, or as many as there are."""
        if count == 0:
            return ()
        before = self._text[-(count - len(path)) :] if count > len(path) else []
        return (*before, *path)[-count:]


def _check_tokens(tokens: Sequence[int], vocab_size: int) -> None:
    outside = [token for token in tokens if not 0 <= token < vocab_size]
    if outside:
        raise InvalidInputError(
            f"token ids of this model are 0 to {vocab_size - 1}; a rule on the text names "
            f"{outside[0]}."
        )
