"""A predictor that mixes the newest token's experts with no opinion at all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.experts import ModelGeometry
from specfit.core.history import RoutingHistory
from specfit.core.predictor import CoveragePredictor
from specfit.core.tree import DraftTree


@dataclass(frozen=True)
class HalfRemembered(CoveragePredictor):
    """Predict that the newest token's experts are needed again with a given probability.

    Parameters
    ----------
    geometry : ModelGeometry
        Shape of the target; specfit fills it in.
    share : float
        Probability that an expert of the newest token is needed again.
    """

    geometry: ModelGeometry
    share: float = 0.4

    def predict(self, tree: DraftTree, history: RoutingHistory, first: int) -> NDArray[np.float32]:
        """Return the same for every node, float32[N - first, L, E]; a layer sums to K."""
        g = self.geometry
        k, num_experts = g.experts_per_token, g.num_experts
        probs = np.full((g.num_layers, num_experts), k / num_experts, np.float32)
        if history.num_tokens > 0:
            probs[:] = (1 - self.share) * k / (num_experts - k)
            newest = history.recent(1)[0].astype(np.intp)  # [L, K]
            np.put_along_axis(probs, newest, self.share, axis=1)
        return np.repeat(probs[None], len(tree) - first, axis=0)
