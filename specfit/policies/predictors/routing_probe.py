"""A linear probe on the newest token's routing through all layers, of low rank.

Reduced-rank ridge regression (A. J. Izenman, Journal of Multivariate Analysis 5, 1975): what the
newest token needed in any layer says which experts the next ones need in each. It needs nothing of
the drafter; `HiddenProbe` looks at the draft head's hidden state instead.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.history import RoutingHistory
from specfit.core.predictor import predictors
from specfit.policies.log_odds import PROBE_FLOOR, log_odds
from specfit.policies.predictors.scored import ScoredPredictor, scored_file


@predictors.register("routing-probe")
@dataclass(frozen=True)
class RoutingProbe(ScoredPredictor):
    """Predict by a low-rank linear map of the newest token's routing, one for each depth.

    Parameters
    ----------
    folder : str
        Folder that `specfit fit predictor` wrote.
    """

    folder: str
    file = scored_file("routing-probe", down=2, up=3, offset=2)

    def scores(self, history: RoutingHistory) -> NDArray[np.float64]:
        """Return the log odds of what the map predicts, float64[S, L, E]."""
        extra = self.fit.extra
        return probe_scores(history, extra["down"], extra["up"], extra["offset"])


def probe_scores(
    history: RoutingHistory,
    down: NDArray[np.float64],
    up: NDArray[np.float64],
    offset: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the log odds that the map gives, float64[S, L, E].

    Parameters
    ----------
    down : float64[L * E, r]
        One row for each expert of each layer; those of the newest token are summed.
    up : float64[S, r, L * E]
        From their sum to the experts, by depth slot.
    offset : float64[S, L * E]
        Added to each prediction.
    """
    routing = history.recent(1)[0].astype(np.intp)  # [L, K]
    num_layers = len(routing)
    num_experts = len(down) // num_layers
    rows = (np.arange(num_layers)[:, None] * num_experts + routing).ravel()
    predicted = down[rows].sum(axis=0) @ up + offset  # [S, L * E]
    return log_odds(predicted, PROBE_FLOOR).reshape(len(up), num_layers, num_experts)
