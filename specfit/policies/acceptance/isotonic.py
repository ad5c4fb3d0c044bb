"""Isotonic calibration by depth and sibling rank: any map of the probability that does not fall.

Source: B. Zadrozny and C. Elkan, KDD 2002; the pool-adjacent-violators algorithm (M. Ayer and
others, 1955). Departs from it in pooling probabilities into a few bins first, and in pulling a
depth's map to that of all depths, where few nodes were seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.predictor import acceptance_models
from specfit.core.tree import DraftTree
from specfit.policies.acceptance.calibrated import Calibrated, calibration_file, cell_of


@acceptance_models.register("isotonic")
@dataclass(frozen=True)
class Isotonic(Calibrated):
    """Map the drafter's probability by a non-decreasing step curve of the node's depth and rank.

    Parameters
    ----------
    folder : str
        Folder that `specfit fit acceptance` wrote.
    """

    folder: str
    file = calibration_file("isotonic", edges=1, values=3)

    def map(self, tree: DraftTree) -> NDArray[np.float64]:
        """See `Calibrated.map`."""
        values = self.fit.numbers["values"]
        bins = np.searchsorted(self.fit.numbers["edges"], tree.log_probs.astype(np.float64))
        mapped: NDArray[np.float64] = values[(*cell_of(tree, values.shape), bins)]
        return mapped
