"""Persistence: the experts of the newest committed token are needed again more often than others.

Source: the reuse between neighbouring tokens that offloading systems report. Departs from using the
set as it is: how often an expert stays is fitted, by layer and draft depth.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.history import RoutingHistory
from specfit.core.predictor import predictors
from specfit.policies.predictors.scored import ScoredPredictor, scored_file


@predictors.register("previous-token")
@dataclass(frozen=True)
class PreviousToken(ScoredPredictor):
    """Predict that the newest token's experts are needed again, as often as they have been.

    Parameters
    ----------
    folder : str
        Folder that `specfit fit predictor` wrote.
    """

    folder: str
    file = scored_file("previous-token")

    def scores(self, history: RoutingHistory) -> NDArray[np.float64]:
        """Return 1 for the experts of the newest token, 0 for others, float64[1, L, E]."""
        return newest_scores(history, self.geometry.num_experts)


def newest_scores(history: RoutingHistory, num_experts: int) -> NDArray[np.float64]:
    """Return 1 for the experts of the newest token, 0 for others, float64[1, L, E]."""
    routing = history.recent(1).astype(np.intp)  # [1, L, K]
    scores = np.zeros((*routing.shape[:2], num_experts))
    np.put_along_axis(scores, routing, 1.0, axis=2)
    return scores
