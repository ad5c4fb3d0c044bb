"""Temperature by depth and sibling rank: the drafter's log odds, divided.

Source: temperature scaling (C. Guo and others, ICML 2017). Departs from it in working on the log
odds of the one token: a draft tree does not hold the drafter's other logits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.predictor import acceptance_models
from specfit.core.tree import DraftTree
from specfit.policies.acceptance.calibrated import (
    Calibrated,
    calibration_file,
    cell_of,
    drafted_log_odds,
)


@acceptance_models.register("temperature")
@dataclass(frozen=True)
class Temperature(Calibrated):
    """Divide the drafter's log odds by a temperature of the node's depth and rank.

    Parameters
    ----------
    folder : str
        Folder that `specfit fit acceptance` wrote.
    """

    folder: str
    file = calibration_file("temperature", inverse_temperatures=2)

    def map(self, tree: DraftTree) -> NDArray[np.float64]:
        """See `Calibrated.map`."""
        inverse = self.fit.numbers["inverse_temperatures"]
        scores = inverse[cell_of(tree, inverse.shape)] * drafted_log_odds(tree.log_probs)
        probs: NDArray[np.float64] = 1.0 / (1.0 + np.exp(-scores))
        return probs
