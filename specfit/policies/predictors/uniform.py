"""The predictor that knows nothing: every expert is as likely as any other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.experts import ModelGeometry
from specfit.core.history import RoutingHistory
from specfit.core.predictor import CoveragePredictor, predictors
from specfit.core.tree import DraftTree
from specfit.policies.predictors.geometry import check_same_shape


@predictors.register("uniform")
@dataclass(frozen=True)
class Uniform(CoveragePredictor):
    """Predict K / E for every node and expert; the fallback for a model without fitted inputs.

    Parameters
    ----------
    geometry : ModelGeometry
        Shape of the target.
    """

    geometry: ModelGeometry

    def predict(self, tree: DraftTree, history: RoutingHistory, first: int) -> NDArray[np.float32]:
        """Return K / E everywhere, float32[N - first, L, E]."""
        shape = self.geometry
        size = (len(tree) - first, shape.num_layers, shape.num_experts)
        return np.full(size, shape.experts_per_token / shape.num_experts, np.float32)

    def check_geometry(self, geometry: ModelGeometry) -> None:
        """Raise `CheckpointError` if the target has another shape than the one given."""
        check_same_shape(self.geometry, geometry, "the uniform predictor")
