"""One logistic curve for all nodes, on log q, depth, sibling rank and the drafter's entropy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.predictor import acceptance_models
from specfit.core.tree import DraftTree
from specfit.policies.acceptance._kernels import LOG_FLOOR
from specfit.policies.acceptance.calibrated import Calibrated, calibration_file, drafted_log_odds

NUM_FEATURES = 6
"""Constant, log q, log odds of q, depth, rank, entropy in nats of the drafter's distribution."""

_DEEPEST, _LAST_RANK = 8, 9


@acceptance_models.register("logistic")
@dataclass(frozen=True)
class Logistic(Calibrated):
    """Calibrate by one logistic curve on log q, depth, rank and entropy.

    Parameters
    ----------
    folder : str
        Folder that `specfit fit acceptance` wrote.
    """

    folder: str
    file = calibration_file("logistic", weights=1)

    def map(self, tree: DraftTree) -> NDArray[np.float64]:
        """See `Calibrated.map`."""
        x = features(tree.log_probs, tree.depths, tree.ranks, tree.entropies)
        probs: NDArray[np.float64] = 1.0 / (1.0 + np.exp(-(x @ self.fit.numbers["weights"])))
        return probs


def features(
    log_probs: NDArray[np.float32],
    depths: NDArray[np.int32],
    ranks: NDArray[np.int32],
    entropies: NDArray[np.float32],
) -> NDArray[np.float64]:
    """Return what the curve looks at, float64[n, 6]."""
    columns = (
        np.ones(len(log_probs)),
        np.maximum(log_probs.astype(np.float64), LOG_FLOOR),
        drafted_log_odds(log_probs),
        np.minimum(depths, _DEEPEST),
        np.minimum(ranks, _LAST_RANK),
        entropies,
    )
    return np.stack(columns, axis=1).astype(np.float64)
