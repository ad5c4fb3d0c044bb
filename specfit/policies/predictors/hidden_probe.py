"""A linear probe on the drafter's hidden state, of low rank.

Reduced-rank ridge regression (A. Mukherjee and J. Zhu, Statistical Analysis and Data Mining 4,
2011) from the state that a node was drawn from to the experts that it needs in each layer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.predictor import predictors
from specfit.policies.log_odds import PROBE_FLOOR, log_odds
from specfit.policies.predictors.scored import EVERY_LAYER, Layers, ScoreFit, scored_file
from specfit.policies.predictors.states import StatePredictor, products


@predictors.register("hidden-probe")
@dataclass(frozen=True)
class HiddenProbe(StatePredictor):
    """Predict by a low-rank linear map of the draft head's hidden state, calibrated by depth.

    Parameters
    ----------
    folder : str
        Folder that `specfit fit predictor` wrote.
    """

    folder: str
    file = scored_file("hidden-probe", decay=1, down=2, up=2, offset=1)

    @property
    def width(self) -> int:
        """See `StatePredictor.width`."""
        return len(self.fit.extra["down"])

    def is_whole(self, fit: ScoreFit) -> bool:
        """See `ScoredPredictor.is_whole`."""
        down, up = fit.extra["down"], fit.extra["up"]
        size = fit.geometry.num_layers * fit.geometry.num_experts
        shapes = up.shape == (down.shape[1], size) and fit.extra["offset"].shape == (size,)
        return shapes and fit.extra["decay"].shape == (1,)

    def state_scores(
        self, states: NDArray[np.float64], layers: Layers = EVERY_LAYER
    ) -> NDArray[np.float64]:
        """Return the log odds of what the map predicts, float64[n, l, E]."""
        extra = self.fit.extra
        up, offset = (self._columns(extra[name], layers) for name in ("up", "offset"))
        scores = map_scores(states, extra["down"], up, offset)
        return scores.reshape(len(states), -1, self.geometry.num_experts)


def map_scores(
    states: NDArray[np.float64],
    down: NDArray[np.float64],
    up: NDArray[np.float64],
    offset: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the log odds that the map gives, float64[n, l * E], in l layers.

    Parameters
    ----------
    states : float64[n, D]
        Of unit size.
    down : float64[D, r]
        From a state to r numbers.
    up : float64[r, l * E]
        From these to the experts.
    offset : float64[l * E]
        Added to each prediction.
    """
    return log_odds(products(products(states, down), up) + offset, PROBE_FLOOR)
