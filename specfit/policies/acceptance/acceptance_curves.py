"""Fitted acceptance curves: by depth, sibling rank, the drafter's probability, and repetition.

Knows the arithmetic and the file; how the numbers are fitted is `specfit.policies.fitting`'s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError
from specfit.core.tree import DraftTree
from specfit.policies.acceptance._kernels import NUM_FEATURES, NUM_LINES, accept_probs
from specfit.policies.acceptance._repeats import LONGEST_RUN, find_repeats
from specfit.policies.fitted_file import FittedFile, TensorSpec
from specfit.policies.fitted_numbers import FittedNumbers, are_temperatures

CURVES_FILE = FittedFile(
    kind="acceptance-curves",
    version=2,
    tensors={
        "temperatures": TensorSpec(np.dtype(np.float64), 1),
        "weights": TensorSpec(np.dtype(np.float64), 4),
        "continuations": TensorSpec(np.dtype(np.float64), 3),
        "lines": TensorSpec(np.dtype(np.float64), 3),
        "repeated_continuations": TensorSpec(np.dtype(np.float64), 4),
    },
)

_UNMOVED = np.tile([0.0, 1.0], (NUM_LINES, 1))
"""Lines that leave every node as it is."""


@dataclass(frozen=True, eq=False)
class AcceptanceCurves(FittedNumbers):
    """Logistic acceptance curves of a draft head, for one or more temperatures of the target.

    A node of drafter probability q, depth d and sibling rank r, whose parent's distribution has
    entropy H, is accepted with probability
    ``sigmoid(weights[m, d - 1, r] . (1, log q, log(1 - q), H))``, at most what its earlier siblings
    leave of 1.

    Parameters
    ----------
    fitted_on : str
        Fingerprint of the target and the head they were fitted on.
    temperatures : float64[M]
        Temperatures of the target that were fitted, ascending; 0 is greedy.
    weights : float64[M, D, R, 4]
        Coefficients by depth (from 1) and rank (from 0); the last of each serves all beyond.
    continuations : float64[M, D, C]
        Probability that one of the best 1 .. C children at a depth is the target's token.
    lines : float64[M, 17, 2]
        Constant and slope, 0 or more, of a node's log odds where the text says nothing of it, has a
        run of 1 .. 8 tokens for it, or one of 1 .. 8 against it.
    repeated_continuations : float64[M, 9, D, C]
        As `continuations`, where the longest run that ends at the root has 0 .. 8 tokens.
    """

    fitted_on: str
    temperatures: NDArray[np.float64]
    weights: NDArray[np.float64]
    continuations: NDArray[np.float64]
    lines: NDArray[np.float64]
    repeated_continuations: NDArray[np.float64]

    def __post_init__(self) -> None:
        _check_curves(self)
        super().__post_init__()

    def at(self, temperature: float) -> AcceptanceCurves:
        """Return the curves of one temperature (M = 1).

        Between fitted temperatures all numbers are interpolated linearly; beyond the last one they
        are the last one's.
        """
        above = int(np.searchsorted(self.temperatures, temperature))
        last = len(self.temperatures) - 1
        low, high = max(min(above - 1, last), 0), min(above, last)
        span = self.temperatures[high] - self.temperatures[low]
        share = (temperature - self.temperatures[low]) / span if span > 0 else 0.0

        def between(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
            found: NDArray[np.float64] = (1 - share) * numbers[low] + share * numbers[high]
            return found[None]

        return AcceptanceCurves(
            fitted_on=self.fitted_on,
            temperatures=np.array([temperature]),
            weights=between(self.weights),
            continuations=between(self.continuations),
            lines=between(self.lines),
            repeated_continuations=between(self.repeated_continuations),
        )

    def accept_probs(self, tree: DraftTree) -> NDArray[np.float64]:
        """Return each node's acceptance probability given its parent, float64[N]; M must be 1."""
        return self._probs(tree, np.zeros(len(tree), np.int8), _UNMOVED, 0.0)

    def probs_after(
        self, text: NDArray[np.int64], tree: DraftTree, shift: float
    ) -> NDArray[np.float64]:
        """Return the same after a text, int64[T], that ends before the root.

        The log odds that one of a node's children is accepted are moved by `shift`; each keeps its
        share.
        """
        repeats = np.empty(len(tree), np.int8)
        find_repeats(text, tree.tokens, tree.parents, repeats)
        return self._probs(tree, repeats, self.lines[0], shift)

    def continuation(self, depth: int, top_k: int) -> float:
        """Return the probability that one of `top_k` children at `depth` is accepted; M is 1."""
        return _entry(self.continuations[0], depth, top_k)

    def continuation_after(self, run: int, depth: int, top_k: int, shift: float) -> float:
        """Return the same where the longest run that ends at the root has `run` tokens, 0 to 8.

        Its log odds are moved by `shift`.
        """
        prob = _entry(self.repeated_continuations[0, run], depth, top_k)
        factor = math.exp(shift)
        return prob * factor / (1.0 - prob + prob * factor)

    def _probs(
        self, tree: DraftTree, repeats: NDArray[np.int8], lines: NDArray[np.float64], shift: float
    ) -> NDArray[np.float64]:
        probs = np.empty(len(tree))
        accept_probs(
            tree.parents, tree.log_probs, tree.ranks, tree.entropies, self.weights[0], repeats,
            lines, math.exp(shift), probs,
        )  # fmt: skip
        return probs


def _entry(shares: NDArray[np.float64], depth: int, top_k: int) -> float:
    """Return the entry of a table [D, C] for a depth and a number of children."""
    num_depths, num_ranks = shares.shape
    return float(shares[min(depth, num_depths) - 1, min(top_k, num_ranks) - 1])


def _check_curves(curves: AcceptanceCurves) -> None:
    num_modes = len(curves.temperatures)
    num_depths = curves.weights.shape[1]
    shape = curves.continuations.shape
    rules = {
        "temperatures": are_temperatures(curves.temperatures),
        "weights": curves.weights.shape[0] == num_modes
        and curves.weights.shape[3] == NUM_FEATURES
        and curves.weights.size > 0
        and bool(np.isfinite(curves.weights).all()),
        "continuations": shape[:2] == (num_modes, num_depths) and _are_shares(curves.continuations),
        "lines": curves.lines.shape == (num_modes, NUM_LINES, 2)
        and bool(np.isfinite(curves.lines).all() and (curves.lines[..., 1] >= 0).all()),
        "repeated_continuations": curves.repeated_continuations.shape
        == (num_modes, LONGEST_RUN + 1, *shape[1:])
        and _are_shares(curves.repeated_continuations),
    }
    wrong = [name for name, holds in rules.items() if not holds]
    if wrong:
        raise InvalidInputError(
            f"acceptance curves' {', '.join(wrong)} must have the shape and range that their "
            f"docstring gives; got {[getattr(curves, name).shape for name in wrong]}. "
            f"Fit them again."
        )


def _are_shares(values: NDArray[np.float64]) -> bool:
    """Whether the values are probabilities that do not fall along the last axis; at least one."""
    inside = (values >= 0) & (values <= 1)
    return values.size > 0 and bool(inside.all() and (np.diff(values, axis=-1) >= 0).all())
