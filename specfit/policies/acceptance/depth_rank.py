"""Acceptance by depth and sibling rank: the drafter's probabilities, corrected by fitted curves."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from specfit.core.predictor import AcceptanceModel, acceptance_models
from specfit.core.tree import DraftTree
from specfit.policies.acceptance.acceptance_curves import CURVES_FILE, AcceptanceCurves


@acceptance_models.register("depth-rank")
@dataclass(frozen=True)
class DepthRank(AcceptanceModel):
    """Calibrate by curves that were fitted by depth, sibling rank and temperature.

    Parameters
    ----------
    folder : str
        Folder of the fitted curves; read when first needed.
    temperature : float
        Temperature of the target; 0 is greedy.
    """

    folder: str
    temperature: float = 0.0

    @cached_property
    def curves(self) -> AcceptanceCurves:
        """The fitted numbers at this temperature."""
        return AcceptanceCurves.load(CURVES_FILE, Path(self.folder)).at(self.temperature)

    def calibrate(self, tree: DraftTree) -> NDArray[np.float64]:
        """Return each node's acceptance probability given its parent, float64[N]."""
        return self.curves.accept_probs(tree)

    def continuation(self, depth: int, top_k: int) -> float:
        """Return the probability that one of `top_k` children at `depth` is the target's token."""
        return self.curves.continuation(depth, top_k)
