"""Fitted acceptance curves: acceptance by depth, sibling rank and the drafter's own probability.

Knows the arithmetic and the file; how the numbers are fitted is `specfit.policies.fitting`'s.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError
from specfit.core.tree import DraftTree
from specfit.policies.acceptance._kernels import NUM_FEATURES, accept_probs
from specfit.policies.fitted_file import FittedFile, TensorSpec
from specfit.policies.fitted_numbers import FittedNumbers, are_temperatures

CURVES_FILE = FittedFile(
    kind="acceptance-curves",
    version=1,
    tensors={
        "temperatures": TensorSpec(np.dtype(np.float64), 1),
        "weights": TensorSpec(np.dtype(np.float64), 4),
        "continuations": TensorSpec(np.dtype(np.float64), 3),
    },
)


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
    """

    fitted_on: str
    temperatures: NDArray[np.float64]
    weights: NDArray[np.float64]
    continuations: NDArray[np.float64]

    def __post_init__(self) -> None:
        _check_curves(self)
        super().__post_init__()

    def at(self, temperature: float) -> AcceptanceCurves:
        """Return the curves of one temperature (M = 1).

        Between fitted temperatures coefficients and continuations are interpolated linearly; beyond
        the last one they are the last one's.
        """
        above = int(np.searchsorted(self.temperatures, temperature))
        last = len(self.temperatures) - 1
        low, high = max(min(above - 1, last), 0), min(above, last)
        span = self.temperatures[high] - self.temperatures[low]
        share = (temperature - self.temperatures[low]) / span if span > 0 else 0.0
        return AcceptanceCurves(
            fitted_on=self.fitted_on,
            temperatures=np.array([temperature]),
            weights=((1 - share) * self.weights[low] + share * self.weights[high])[None],
            continuations=(
                (1 - share) * self.continuations[low] + share * self.continuations[high]
            )[None],
        )

    def accept_probs(self, tree: DraftTree, shift: float = 0.0) -> NDArray[np.float64]:
        """Return each node's acceptance probability given its parent, float64[N]; M must be 1.

        The log odds that one of a node's children is accepted are moved by `shift`; each keeps its
        share.
        """
        probs = np.empty(len(tree))
        accept_probs(
            tree.parents, tree.log_probs, tree.ranks, tree.entropies, self.weights[0],
            math.exp(shift), probs,
        )  # fmt: skip
        return probs

    def continuation(self, depth: int, top_k: int, shift: float = 0.0) -> float:
        """Return the probability that one of `top_k` children at `depth` is accepted; M is 1.

        Its log odds are moved by `shift`.
        """
        _, num_depths, num_ranks = self.continuations.shape
        prob = float(self.continuations[0, min(depth, num_depths) - 1, min(top_k, num_ranks) - 1])
        factor = math.exp(shift)
        return prob * factor / (1.0 - prob + prob * factor)


def _check_curves(curves: AcceptanceCurves) -> None:
    num_modes = len(curves.temperatures)
    num_depths = curves.weights.shape[1]
    steps = np.diff(curves.continuations, axis=2)
    rules = {
        "temperatures": are_temperatures(curves.temperatures),
        "weights": curves.weights.shape[0] == num_modes
        and curves.weights.shape[3] == NUM_FEATURES
        and curves.weights.size > 0
        and bool(np.isfinite(curves.weights).all()),
        "continuations": curves.continuations.shape[:2] == (num_modes, num_depths)
        and curves.continuations.size > 0
        and bool(((curves.continuations >= 0) & (curves.continuations <= 1)).all())
        and bool((steps >= 0).all()),
    }
    wrong = [name for name, holds in rules.items() if not holds]
    if wrong:
        raise InvalidInputError(
            f"acceptance curves' {', '.join(wrong)} must have the shape and range that their "
            f"docstring gives; got {[getattr(curves, name).shape for name in wrong]}. "
            f"Fit them again."
        )
