"""Scores fitted inputs on observed texts: what was predicted against what the target then did.

L, E, K as everywhere; n verified nodes of some drafts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from specfit.core.experts import ExpertCoverage, ModelGeometry
from specfit.core.history import RoutingHistory
from specfit.core.observed import ObservedDraft, ObservedText
from specfit.core.predictor import AcceptanceModel, CoveragePredictor
from specfit.core.reliability import Reliability, reliability

_Judged = TypeVar("_Judged", "JudgedExperts", "JudgedAcceptance")


@dataclass(frozen=True, eq=False)
class JudgedExperts:
    """What a predictor said of verified nodes, and which experts they needed.

    Parameters
    ----------
    depths : int32[n]
        Of the nodes; a root has 0.
    probs : float32[n, L, E]
        Predicted probabilities.
    needed : bool[n, L, E]
        K experts of each node and layer.
    """

    depths: NDArray[np.int32]
    probs: NDArray[np.float32]
    needed: NDArray[np.bool_]

    def drafted(self) -> JudgedExperts:
        """Return those nodes that are no roots."""
        below = self.depths > 0
        return JudgedExperts(self.depths[below], self.probs[below], self.needed[below])

    def recall(self) -> NDArray[np.float64]:
        """Return the share of each node's experts that are among the K likeliest, float64[n, L]."""
        counts = self.needed.sum(axis=2, keepdims=True)
        best = likeliest_experts(self.probs, int(counts.max()))
        found = np.take_along_axis(self.needed, best, 2).sum(axis=2)
        return np.asarray(found / counts[..., 0], np.float64)

    def whole(self) -> Reliability:
        """Return how reliable the probabilities of all layers are together."""
        return reliability(self.probs, self.needed)

    def by_layer(self) -> list[Reliability]:
        """Return how reliable the probabilities of each layer are."""
        layers = range(self.probs.shape[1])
        return [reliability(self.probs[:, n], self.needed[:, n]) for n in layers]


@dataclass(frozen=True, eq=False)
class JudgedAcceptance:
    """What an acceptance model said of the nodes whose acceptance is known.

    Parameters
    ----------
    depths, ranks : int32[n]
        Of the nodes, and among their siblings.
    probs : float64[n]
        Predicted probability of acceptance given the parent's.
    accepted : bool[n]
        Whether the target accepts the node.
    """

    depths: NDArray[np.int32]
    ranks: NDArray[np.int32]
    probs: NDArray[np.float64]
    accepted: NDArray[np.bool_]

    def whole(self) -> Reliability:
        """Return how reliable the probabilities of all nodes are."""
        return reliability(self.probs, self.accepted)

    def by_depth(self) -> dict[int, Reliability]:
        """Return how reliable the probabilities of each depth are."""
        found = np.unique(self.depths).tolist()
        inside = {depth: self.depths == depth for depth in found}
        return {d: reliability(self.probs[i], self.accepted[i]) for d, i in inside.items()}


def likeliest_experts(probs: NDArray[Any], count: int) -> NDArray[np.intp]:
    """Return the `count` likeliest experts along the last axis; of equal ones the lower ids."""
    return np.argsort(-probs, axis=-1, kind="stable")[..., :count]


def judge_draft(
    predictor: CoveragePredictor,
    draft: ObservedDraft,
    history: RoutingHistory,
    geometry: ModelGeometry,
) -> JudgedExperts:
    """Return what a predictor says of a draft's verified nodes, and what they needed."""
    return JudgedExperts(
        draft.tree.depths[draft.nodes],
        predictor.predict(draft.tree, history, 0)[draft.nodes],
        ExpertCoverage(draft.routing, geometry.num_experts).mask,
    )


def judge_experts(
    predictor: CoveragePredictor, texts: Iterable[ObservedText], geometry: ModelGeometry
) -> JudgedExperts:
    """Return what a predictor says of all verified nodes of these texts, and what they needed."""
    return pooled(
        [
            judge_draft(predictor, draft, history, geometry)
            for text in texts
            for draft, history in text.histories(geometry)
        ]
    )


def judge_acceptance(model: AcceptanceModel, texts: Iterable[ObservedText]) -> JudgedAcceptance:
    """Return what a model says of all nodes whose acceptance is known; it learns nothing."""
    parts = []
    for draft in (draft for text in texts for draft in text.drafts):
        nodes, accepted = draft.judged()
        tree = draft.tree
        probs = model.calibrate(tree)[nodes]
        parts.append(JudgedAcceptance(tree.depths[nodes], tree.ranks[nodes], probs, accepted))
    return pooled(parts)


def pooled(parts: Sequence[_Judged]) -> _Judged:
    """Return the nodes of all parts as one; there is at least one part."""
    names = [f.name for f in fields(parts[0])]
    columns = [np.concatenate([getattr(part, name) for part in parts]) for name in names]
    return type(parts[0])(*columns)
