"""Decayed frequency: experts that the text needed often, and lately, are needed again.

The rule by which least-frequently-used caches with ageing rank experts, turned into a probability.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.experts import ModelGeometry
from specfit.core.history import RoutingHistory
from specfit.core.predictor import predictors
from specfit.policies.predictors._normalise import decayed_counts
from specfit.policies.predictors.scored import ScoredPredictor, scored_file

WINDOW = 256
"""Committed tokens that are looked back on."""

_NEVER = 0.05


@predictors.register("decayed-frequency")
@dataclass(frozen=True)
class DecayedFrequency(ScoredPredictor):
    """Predict an expert by how often the text needed it, each use fading with every token.

    Parameters
    ----------
    folder : str
        Folder that `specfit fit predictor` wrote; the rate of fading is fitted too.
    """

    folder: str
    file = scored_file("decayed-frequency", decay=1)

    def scores(self, history: RoutingHistory) -> NDArray[np.float64]:
        """Return the logarithm of each expert's faded uses, float64[1, L, E]."""
        return frequency_scores(history, self.geometry, float(self.fit.extra["decay"][0]))


def frequency_scores(
    history: RoutingHistory, geometry: ModelGeometry, decay: float
) -> NDArray[np.float64]:
    """Return the logarithm of each expert's uses, faded by `decay` a token, float64[1, L, E]."""
    counts = np.zeros((geometry.num_layers, geometry.num_experts))
    decayed_counts(history.recent(WINDOW), decay, counts)
    scores: NDArray[np.float64] = np.log(counts + _NEVER)[None]
    return scores
