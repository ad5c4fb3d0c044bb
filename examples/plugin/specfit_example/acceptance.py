"""An acceptance model that flattens or sharpens the drafter's probabilities."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.predictor import AcceptanceModel
from specfit.core.tree import DraftTree


@dataclass(frozen=True)
class Tempered(AcceptanceModel):
    """Raise every probability to the power ``1 / temperature``, then keep siblings within 1.

    Parameters
    ----------
    temperature : float
        Below 1 the drafter is trusted less.
    """

    temperature: float = 0.8

    def calibrate(self, tree: DraftTree) -> NDArray[np.float64]:
        """Return each node's acceptance probability given its parent, float64[N]."""
        probs = tree.cond_probs ** (1.0 / self.temperature)
        left = np.ones(len(tree))
        for node, parent in enumerate(tree.parents.tolist()[1:], 1):
            probs[node] = min(probs[node], left[parent])
            left[parent] -= probs[node]
        return probs

    def continuation(self, depth: int, top_k: int) -> float:
        """Return 1: no continuation is ruled out."""
        return 1.0
