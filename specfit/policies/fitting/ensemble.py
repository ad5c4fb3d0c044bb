"""Fits an ensemble: its members on some texts, their weights on others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core.experts import ExpertCoverage, ModelGeometry
from specfit.core.observed import ObservedText
from specfit.core.predictor import CoveragePredictor
from specfit.policies.fitting.acceptance_curves import logistic
from specfit.policies.log_odds import POOL_FLOOR, log_odds
from specfit.policies.predictors.ensemble import EnsembleFit

_RIDGE = 1.0


def fit_ensemble(
    members: Mapping[str, CoveragePredictor],
    texts: Sequence[ObservedText],
    geometry: ModelGeometry,
    fitted_on: str,
    max_nodes: int,
) -> EnsembleFit:
    """Return the weights under which the texts' routing is likeliest.

    Parameters
    ----------
    members : mapping of str to CoveragePredictor
        Fitted predictors by registered name; on other texts than these.
    texts : sequence of ObservedText
        Texts to fit the weights on.
    max_nodes : int
        Of more nodes, about that many are taken.
    """
    x, needed = _predictions(members, texts, geometry, max_nodes)
    fits = [_logistic(x[:, :, layer], needed[:, layer]) for layer in range(geometry.num_layers)]
    found = np.array(fits)  # [L, M + 1]
    return EnsembleFit(geometry, fitted_on, tuple(members), found[:, :-1].T.copy(), found[:, -1])


def _predictions(
    members: Mapping[str, CoveragePredictor],
    texts: Sequence[ObservedText],
    geometry: ModelGeometry,
    max_nodes: int,
) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """Return the members' log odds [M, n, L, E] and what was needed, bool[n, L, E]."""
    total = sum(len(draft.nodes) for text in texts for draft in text.drafts)
    step = max(1, total // max_nodes)
    logits, needed = [], []
    for text in texts:
        for draft, history in text.histories(geometry):
            rows = np.arange(len(draft.nodes))[::step]
            probs = [m.predict(draft.tree, history, 0)[draft.nodes[rows]] for m in members.values()]
            logits.append(np.stack([log_odds(p, POOL_FLOOR) for p in probs]))
            needed.append(ExpertCoverage(draft.routing[rows], geometry.num_experts).mask)
    return np.concatenate(logits, axis=1), np.concatenate(needed)


def _logistic(x: NDArray[Any], needed: NDArray[np.bool_]) -> NDArray[np.float64]:
    """Return the weights of x [M, n, E] and an intercept, pulled to the members' mean."""
    num_members = len(x)
    features = np.concatenate([x.reshape(num_members, -1), np.ones((1, needed.size))])
    y = needed.ravel().astype(np.float64)
    prior = np.append(np.full(num_members, 1 / num_members), 0.0)
    return logistic(features.T, y, prior, _RIDGE)
