"""The target's own routers, applied to the drafter's hidden state.

An EAGLE-3 head draws from a state that stands where the target's own would: what each router makes
of it hints at the experts, once its logits have been calibrated.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.predictor import predictors
from specfit.policies.fitted_file import FittedFile, TensorSpec
from specfit.policies.predictors.scored import EVERY_LAYER, Layers, ScoreFit, scored_file
from specfit.policies.predictors.states import StatePredictor, products

_CALIBRATION = scored_file("target-routers", decay=1)


@predictors.register("target-routers")
@dataclass(frozen=True)
class TargetRouters(StatePredictor):
    """Predict by what the target's routers say of the draft head's state, calibrated by depth.

    Parameters
    ----------
    folder : str
        Folder that `specfit fit predictor` wrote; it holds a copy of the routers.
    """

    folder: str
    file = FittedFile(
        _CALIBRATION.kind,
        _CALIBRATION.version,
        {**_CALIBRATION.tensors, "routers": TensorSpec(np.dtype(np.float32), 2)},
    )

    @property
    def width(self) -> int:
        """See `StatePredictor.width`."""
        return len(self.fit.extra["routers"])

    def is_whole(self, fit: ScoreFit) -> bool:
        """See `ScoredPredictor.is_whole`."""
        size = fit.geometry.num_layers * fit.geometry.num_experts
        shapes = fit.extra["routers"].shape[1] == size
        return shapes and fit.extra["decay"].shape == (1,)

    def state_scores(
        self, states: NDArray[np.float64], layers: Layers = EVERY_LAYER
    ) -> NDArray[np.float64]:
        """Return the routers' logits, float64[n, l, E]."""
        logits = products(states, self._columns(self.fit.extra["routers"], layers))
        return logits.reshape(len(states), -1, self.geometry.num_experts)


def router_matrix(routers: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return routers [L, E, D] as one matrix [D, L * E] whose logits of a layer sum to 0."""
    centred = routers - routers.mean(axis=1, keepdims=True)
    return np.ascontiguousarray(centred.reshape(-1, routers.shape[2]).T)
