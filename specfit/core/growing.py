"""The predicted experts of a tree that grows: each level is predicted once, when asked for."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specfit.core.experts import ExpertProbs
from specfit.core.history import RoutingHistory
from specfit.core.predictor import CoveragePredictor
from specfit.core.tree import DraftTree

_FIRST_ROOM = 64
"""Nodes that a prediction has memory for at first; what is never written takes none."""


class GrowingPrediction:
    """Predicts a tree's experts level by level; no node is predicted twice in the same layers."""

    def __init__(self, predictor: CoveragePredictor, history: RoutingHistory) -> None:
        self._predictor = predictor
        self._history = history
        self._by_layers: dict[bytes, _Rows] = {}

    def __call__(self, tree: DraftTree, layers: NDArray[np.bool_] | None = None) -> ExpertProbs:
        """Return the predicted routing of a tree, [N, L, E]; with a mask of l layers [N, l, E]."""
        rows = self._by_layers.setdefault(b"" if layers is None else layers.tobytes(), _Rows())
        if rows.count < len(tree):
            rows.append(self._new(tree, rows.count, layers))
        source, novelty = type(self._predictor).__name__, self._predictor.novelty
        return ExpertProbs(rows.probs[: len(tree)], source, novelty)

    def forget(self) -> None:
        """Free what was predicted; it is predicted again if asked for."""
        self._by_layers.clear()

    def _new(
        self, tree: DraftTree, first: int, layers: NDArray[np.bool_] | None
    ) -> NDArray[np.float32]:
        if layers is None:
            return self._predictor.predict(tree, self._history, first)
        return self._predictor.predict_layers(tree, self._history, first, layers)


class _Rows:
    """Predicted nodes, with room for more."""

    def __init__(self) -> None:
        self.count = 0
        self.probs = np.empty((0, 0, 0), np.float32)  # [room, L or l, E]

    def append(self, new: NDArray[np.float32]) -> None:
        count = self.count + len(new)
        if count > len(self.probs):
            room = max(_FIRST_ROOM, 2 * self.count, count)
            grown = np.empty((room, *new.shape[1:]), np.float32)
            if self.count:
                grown[: self.count] = self.probs[: self.count]
            self.probs = grown
        self.probs[self.count : count] = new
        self.count = count
