"""The acceptance model that takes the drafter at its word."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.predictor import AcceptanceModel, acceptance_models
from specfit.core.tree import DraftTree


@acceptance_models.register("identity")
@dataclass(frozen=True)
class Identity(AcceptanceModel):
    """Return the drafter's own probabilities; the fallback for a head without fitted inputs."""

    def calibrate(self, tree: DraftTree) -> NDArray[np.float64]:
        """Return the drafter's probability of each node given its parent, float64[N]."""
        return tree.cond_probs

    def continuation(self, depth: int, top_k: int) -> float:
        """Return 1: nothing is known of the levels to come, so no continuation is ruled out."""
        return 1.0
