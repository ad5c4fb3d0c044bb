"""Sampling settings and noise keyed by position, so that drafts cannot change the text.

Speculative and plain sampling draw the same token at a position because the Gumbel noise of that
position depends on nothing but the seed and the position.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError


@dataclass(frozen=True)
class Sampling:
    """How the target's tokens are drawn.

    Parameters
    ----------
    temperature : float
        0 is greedy; otherwise logits are divided by it.
    top_k : int
        Keep the `top_k` most probable tokens; 0 keeps all.
    top_p : float
        Keep the smallest set of tokens with at least this probability; 1 keeps all.
    noise_key : int
        Key of the position-keyed noise, 0 to 2**64 - 1.
    min_p : float
        Keep tokens with at least this share of the most probable one's probability; 0 keeps all.
    typical_p : float
        Keep the most typical tokens with at least this probability; 1 keeps all.
    repetition_penalty : float
        Divides the positive and multiplies the negative logits of tokens of the text; 1 does
        nothing.
    no_repeat_ngram_size : int
        No run of so many tokens comes twice; 0 lets all come.
    min_new_tokens : int
        No stop token comes before so many tokens.
    suppress_tokens, begin_suppress_tokens : tuple of int
        Tokens that never come, and that do not come first.
    bad_words : tuple of tuple of int
        Runs of tokens that never come; a stop token alone is not one.

    Notes
    -----
    The names and the rules are those of transformers; like there, `min_p` and `typical_p` act on
    sampling alone, the ones after them on greedy decoding, too.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    noise_key: int = 0
    min_p: float = 0.0
    typical_p: float = 1.0
    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    min_new_tokens: int = 0
    suppress_tokens: tuple[int, ...] = ()
    begin_suppress_tokens: tuple[int, ...] = ()
    bad_words: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < float("inf"):
            raise InvalidInputError(
                f"temperature must be 0 (greedy) or more; got {self.temperature}."
            )
        if self.top_k < 0:
            raise InvalidInputError(f"top_k must be 0 (all) or more; got {self.top_k}.")
        if not 0 < self.top_p <= 1:
            raise InvalidInputError(f"top_p must be above 0 and at most 1; got {self.top_p}.")
        if not 0 <= self.noise_key < 2**64:
            raise InvalidInputError(f"noise_key must be 0 to 2**64 - 1; got {self.noise_key}.")
        if not 0 <= self.min_p <= 1:
            raise InvalidInputError(f"min_p must be 0 to 1; got {self.min_p}.")
        if not 0 < self.typical_p <= 1:
            raise InvalidInputError(
                f"typical_p must be above 0 and at most 1; got {self.typical_p}."
            )
        if not 0 < self.repetition_penalty < float("inf"):
            raise InvalidInputError(
                f"repetition_penalty must be above 0; got {self.repetition_penalty}."
            )
        for name in ("no_repeat_ngram_size", "min_new_tokens"):
            if getattr(self, name) < 0:
                raise InvalidInputError(f"{name} must be 0 or more; got {getattr(self, name)}.")
        if () in self.bad_words:
            raise InvalidInputError("a bad word must have at least one token; got one with none.")

    @property
    def is_greedy(self) -> bool:
        """Whether the most probable token is taken."""
        return self.temperature == 0

    @property
    def reads_text(self) -> bool:
        """Whether a token's logits depend on the text beyond the model: one of the last rules."""
        return replace(self, min_p=0.0, typical_p=1.0) != self.first_rules

    @property
    def first_rules(self) -> Sampling:
        """The same with temperature, top-k and top-p alone."""
        return Sampling(self.temperature, self.top_k, self.top_p, self.noise_key)


def gumbel_noise(noise_key: int, position: int, size: int) -> NDArray[np.float64]:
    """Return the standard Gumbel noise of the token emitted at `position`, float64[size].

    Parameters
    ----------
    noise_key : int
        Key of the run.
    position : int
        Index of the emitted token in the whole text, prompt included.
    size : int
        Vocabulary size.
    """
    generator = np.random.Generator(np.random.Philox(key=[noise_key, position]))
    return generator.gumbel(size=size)


def processed_logits(logits: NDArray[np.float64], sampling: Sampling) -> NDArray[np.float64]:
    """Return the logits of the distribution that tokens are drawn from, float64[n, V].

    Temperature first, then top-k, then top-p over what is left; what is cut is ``-inf``. Of equal
    logits the lower id is kept. Greedy logits are returned as they are.

    Raises
    ------
    InvalidInputError
        Another rule is set: live backends have them.
    """
    if sampling != sampling.first_rules:
        raise InvalidInputError("this backend has temperature, top_k and top_p only.")
    if sampling.is_greedy:
        return logits
    scaled = logits / sampling.temperature
    order = np.argsort(-scaled, axis=-1, kind="stable")
    ranked = np.take_along_axis(scaled, order, -1)
    if sampling.top_k:
        ranked[..., sampling.top_k :] = -np.inf
    if sampling.top_p < 1:
        probs = np.exp(ranked - ranked[..., :1])
        before = np.cumsum(probs, axis=-1) - probs
        ranked[before >= sampling.top_p * probs.sum(axis=-1, keepdims=True)] = -np.inf
    processed = np.empty_like(scaled)
    np.put_along_axis(processed, order, ranked, -1)
    return processed
