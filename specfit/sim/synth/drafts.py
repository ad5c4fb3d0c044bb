"""The synthetic drafter: how sure it is after a context, and where the target's token stands."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError
from specfit.sim.synth._kernels import draft, draw_candidates
from specfit.sim.synth.parameters import (
    ACCEPTANCE_BY_LEVEL,
    CONFIDENCE_SHAPE,
    RANK_SHARES,
)
from specfit.sim.synth.texts import token_odds

NUM_RANKS = 1 + len(RANK_SHARES)
"""Children that the drafter can name after a context."""

MAX_LEVELS = 64


@dataclass(frozen=True, eq=False)
class Guesses:
    """What the drafter says after some contexts.

    Parameters
    ----------
    tokens : int64[n, R]
        Its best tokens, the best first.
    log_probs : float32[n, R]
        What it claims their probabilities to be.
    entropies : float32[n]
        Entropy in nats of what it claims, all further tokens counted as one.
    """

    tokens: NDArray[np.int64]
    log_probs: NDArray[np.float32]
    entropies: NDArray[np.float32]


@dataclass(frozen=True)
class SynthDrafter:
    """Guesses tokens; right about its own odds unless it is overconfident.

    Parameters
    ----------
    first_acceptance : float
        Mean probability that its best token, one level down, is the target's.
    by_level : float
        Factor of that mean from one level to the next.
    overconfidence : float
        Claimed probabilities are the true ones to this power, normalised: 1 is calibrated.
    """

    first_acceptance: float
    by_level: float = ACCEPTANCE_BY_LEVEL
    overconfidence: float = 1.0

    def __post_init__(self) -> None:
        if not _LOWEST < self.first_acceptance < 1:
            raise InvalidInputError(
                f"first_acceptance must lie between {_LOWEST:.3f} and 1; "
                f"got {self.first_acceptance}."
            )
        if not 0 < self.by_level <= 1:
            raise InvalidInputError(f"by_level must be above 0 and at most 1; got {self.by_level}.")
        if not 0 < self.overconfidence < 10:
            raise InvalidInputError(
                f"overconfidence must be above 0 (1 is calibrated) and below 10; "
                f"got {self.overconfidence}."
            )

    def own_tokens(self, keys: NDArray[np.uint64]) -> NDArray[np.int64]:
        """Return the target's own token after each context, int64[n]."""
        return _candidates(keys, 1)[:, 0]

    def target_probs(self, keys: NDArray[np.uint64]) -> NDArray[np.float64]:
        """Return the confidence of the best guess one level down, which stands for the target's."""
        return self._draft(keys, np.zeros(len(keys), np.intp))[1][:, 0]

    def guess(self, keys: NDArray[np.uint64], depths: NDArray[np.int32]) -> Guesses:
        """Return the guesses after contexts that lie `depths` levels below the root."""
        tokens, probs = self._draft(keys, np.minimum(depths, MAX_LEVELS - 1).astype(np.intp))
        rest = np.maximum(1.0 - probs.sum(axis=1, keepdims=True), 1e-12)
        claimed = np.concatenate([probs, rest], axis=1) ** self.overconfidence
        claimed /= claimed.sum(axis=1, keepdims=True)
        entropies = -(claimed * np.log(claimed)).sum(axis=1)
        log_probs = np.log(claimed[:, :-1])
        return Guesses(tokens, log_probs.astype(np.float32), entropies.astype(np.float32))

    def _draft(
        self, keys: NDArray[np.uint64], depths: NDArray[np.intp]
    ) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        tokens = np.empty((len(keys), NUM_RANKS), np.int64)
        probs = np.empty((len(keys), NUM_RANKS))
        draft(
            keys,
            self._exponents[depths],
            CONFIDENCE_SHAPE,
            np.array(RANK_SHARES),
            _candidates(keys, NUM_RANKS + 1),
            tokens,
            probs,
        )
        return tokens, probs

    @cached_property
    def _exponents(self) -> NDArray[np.float64]:
        """Exponent of the confidence at each depth, float64[MAX_LEVELS]."""
        means = self.first_acceptance * self.by_level ** np.arange(MAX_LEVELS)
        surplus = np.maximum((means - _LOWEST) / (1.0 - _LOWEST), 1e-3)
        return np.array([_exponent_of_mean(m) for m in surplus])


_LOWEST = RANK_SHARES[0] / (1.0 + RANK_SHARES[0])
"""A best guess is at least as likely as the second."""


def _candidates(keys: NDArray[np.uint64], count: int) -> NDArray[np.int64]:
    candidates = np.empty((len(keys), count), np.int64)
    draw_candidates(keys, token_odds(), candidates)
    return candidates


def _exponent_of_mean(mean: float) -> float:
    """Return the exponent under which the confidence above the lowest is `mean` on average."""
    uniforms = (np.arange(4096) + 0.5) / 4096
    sure = 1.0 - (1.0 - uniforms) ** (1.0 / CONFIDENCE_SHAPE)
    low, high = 1e-6, 1e4
    for _ in range(80):
        middle = np.sqrt(low * high)
        low, high = (middle, high) if (sure**middle).mean() > mean else (low, middle)
    return float(np.sqrt(low * high))
