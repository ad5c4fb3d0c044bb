"""Fits the predictors that look at the drafter's hidden state.

One example is a drafted node that has children: the state that they were drawn from, and how many
of those that the target has run needed each expert.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError
from specfit.core.experts import ExpertCoverage, ModelGeometry
from specfit.core.observed import ObservedText
from specfit.policies.fitting.scored import (
    MAP,
    NUM_SLOTS,
    Examples,
    Map,
    fit_decayed_frequency,
    likeliest,
    logistic_by_slot,
    principal,
)
from specfit.policies.predictors.hidden_probe import map_scores
from specfit.policies.predictors.scored import ScoreFit
from specfit.policies.predictors.states import products, states_of, unit_states
from specfit.policies.predictors.target_routers import router_matrix

HIDDEN_RANK = 64
"""Rank of the probe on hidden states."""

HIDDEN_PENALTIES = (10.0, 100.0, 1000.0, 10000.0)
"""Ridge penalties tried; the held-out texts choose."""

MOST_EXAMPLES = 20_000
"""Of more examples, so many are taken evenly: memory grows with them."""


@dataclass(frozen=True, eq=False)
class StateExamples(Examples):
    """Examples with their states of unit size, float64[n, D]."""

    states: NDArray[np.float64]

    @classmethod
    def of(cls, texts: Sequence[ObservedText], geometry: ModelGeometry) -> StateExamples:
        """Return the examples of texts.

        Raises
        ------
        InvalidInputError
            Nothing was drafted, or trees hold no states.
        """
        slots, counts, needs, states = [], [], [], []
        for draft in (draft for text in texts for draft in text.drafts):
            nodes = draft.nodes[1:]  # the root was not drafted
            if len(nodes) == 0:
                continue
            parents = draft.tree.parents[nodes]
            _, rows, place, num = np.unique(
                parents, return_index=True, return_inverse=True, return_counts=True
            )
            mask = ExpertCoverage(draft.routing[1:], geometry.num_experts).mask
            needed = np.zeros((len(rows), *mask.shape[1:]), np.int32)
            np.add.at(needed, place, mask)
            eldest = nodes[rows]
            slots.append(np.minimum(draft.tree.depths[eldest], NUM_SLOTS - 1))
            counts.append(num)
            needs.append(needed)
            states.append(states_of(draft.tree)[eldest])
        if not slots:
            raise InvalidInputError(
                "a predictor of hidden states is fitted on drafted nodes; got none. Record a "
                "trace with drafts."
            )
        total = sum(map(len, slots))
        kept = np.linspace(0, total - 1, min(total, MOST_EXAMPLES)).round().astype(np.intp)
        return cls(
            np.concatenate(slots)[kept].astype(np.int64),
            np.concatenate(counts)[kept].astype(np.float64),
            np.concatenate(needs)[kept].astype(np.float64),
            unit_states(np.concatenate(states)[kept]),
        )


def fit_hidden_probe(
    train: Sequence[ObservedText],
    held_out: Sequence[ObservedText],
    geometry: ModelGeometry,
    fitted_on: str,
) -> ScoreFit:
    """Return the low-rank map fitted on `train`, its penalty and calibration on `held_out`."""
    taught, judge = StateExamples.of(train, geometry), StateExamples.of(held_out, geometry)
    count = taught.num_nodes
    flat = (taught.needs / count[:, None, None]).reshape(len(count), -1)
    slopes, intercepts, best = likeliest(
        (low_rank_ridge(taught.states, flat, count, p, HIDDEN_RANK) for p in HIDDEN_PENALTIES),
        judge,
        lambda tried: map_scores(judge.states, *tried).reshape(judge.needs.shape),
    )
    extra = dict(zip(MAP, best, strict=True))
    root = fit_decayed_frequency(train, held_out, geometry, fitted_on)
    return _with_root(ScoreFit(geometry, fitted_on, slopes, intercepts, extra), root)


def fit_target_routers(
    texts: Sequence[ObservedText],
    geometry: ModelGeometry,
    fitted_on: str,
    routers: NDArray[np.float32],
) -> ScoreFit:
    """Return the calibration of the routers' logits by depth and layer.

    Parameters
    ----------
    routers : float32[L, E, D]
        As they act on a hidden state of unit size.

    Raises
    ------
    InvalidInputError
        The routers are those of another model, or read wider or narrower states.
    """
    examples = StateExamples.of(texts, geometry)
    shape = (geometry.num_layers, geometry.num_experts, examples.states.shape[1])
    if routers.shape != shape:
        raise InvalidInputError(
            f"the routers must be [L, E, D] = {list(shape)}, D being the width of the drafter's "
            f"states; got {list(routers.shape)}. Give the checkpoint of the trace's model."
        )
    matrix = router_matrix(routers)
    scores = products(examples.states, matrix).reshape(examples.needs.shape)
    slopes, intercepts, _ = logistic_by_slot(examples, scores)
    root = fit_decayed_frequency(texts, (), geometry, fitted_on)
    fit = ScoreFit(geometry, fitted_on, slopes, intercepts, {"routers": matrix})
    return _with_root(fit, root)


def low_rank_ridge(
    x: NDArray[np.float64],
    y: NDArray[np.float64],
    weights: NDArray[np.float64],
    penalty: float,
    rank: int,
) -> Map:
    """Return down [D, r], up [r, R] and offset [R] of the best map of that rank.

    Parameters
    ----------
    x, y : float64[n, D], float64[n, R]
        Examples.
    weights : float64[n]
        How often each counts.
    penalty : float
        On the squares of the map; none on the offset.
    """
    x_mean, y_mean = (np.average(a, axis=0, weights=weights) for a in (x, y))
    xc, yc = x - x_mean, y - y_mean
    weighed = (xc * weights[:, None]).T
    gram = weighed @ xc + penalty * np.eye(x.shape[1])
    full = np.asarray(np.linalg.solve(gram, weighed @ yc), np.float64)  # [D, R]
    basis = principal(full, gram, rank)
    down, up = full @ basis, np.ascontiguousarray(basis.T)
    return down, up, y_mean - x_mean @ down @ up


def _with_root(fit: ScoreFit, root: ScoreFit) -> ScoreFit:
    """Return the fit with the calibration of another's root in place of its own, which has none."""
    slopes, intercepts = fit.slopes.copy(), fit.intercepts.copy()
    slopes[0], intercepts[0] = root.slopes[0], root.intercepts[0]
    extra = {**fit.extra, **root.extra}
    return ScoreFit(fit.geometry, fit.fitted_on, slopes, intercepts, extra)
