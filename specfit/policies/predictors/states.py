"""What predictors share that look at the drafter's hidden states, `DraftTree.states`.

A drafted node is scored by the state that it was drawn from, which its siblings share; scores
become probabilities by depth and layer, as in `scored`. The root was not drafted: it is predicted
as by `DecayedFrequency`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core._jit import kernel
from specfit.core.errors import InvalidInputError
from specfit.core.history import RoutingHistory
from specfit.core.tree import DraftTree
from specfit.policies.predictors.decayed_frequency import frequency_scores
from specfit.policies.predictors.scored import EVERY_LAYER, Layers, ScoredPredictor

_LEAST_SQUARE = 1e-6


class StatePredictor(ScoredPredictor):
    """A predictor that scores drafted nodes by their states; see the head of this module."""

    @property
    def needs_states(self) -> bool:
        """See `CoveragePredictor.needs_states`."""
        return True

    @property
    @abstractmethod
    def width(self) -> int:
        """Width D of the states that it was fitted on."""

    @abstractmethod
    def state_scores(
        self, states: NDArray[np.float64], layers: Layers = EVERY_LAYER
    ) -> NDArray[np.float64]:
        """Return the score of each expert by states [n, D] of unit size, float64[n, l, E]."""

    def scores(self, history: RoutingHistory) -> NDArray[np.float64]:
        """Return the root's scores, float64[1, L, E]."""
        return frequency_scores(history, self.geometry, float(self.fit.extra["decay"][0]))

    def _probs(
        self, tree: DraftTree, history: RoutingHistory, first: int, layers: Layers
    ) -> NDArray[np.float32]:
        """See `ScoredPredictor`.

        Raises
        ------
        InvalidInputError
            A drafted node has no state, or one of another width.
        """
        if len(tree) == 1:
            return super()._probs(tree, history, first, layers)
        drafted = self._drafted_probs(tree, max(first, 1), layers)
        if first > 0:
            return drafted
        return np.concatenate((super()._probs(tree.first(1), history, 0, layers), drafted))

    def _drafted_probs(self, tree: DraftTree, first: int, layers: Layers) -> NDArray[np.float32]:
        states = states_of(tree, self.width)
        _, rows, place = np.unique(tree.parents[first:], return_index=True, return_inverse=True)
        eldest = first + rows  # the first of the siblings stands for all
        slots = np.minimum(tree.depths[eldest], len(self.fit.slopes) - 1)
        scores = self.state_scores(unit_states(states[eldest]), layers)
        return self._calibrated(scores, slots, layers)[place]

    def _columns(self, matrix: NDArray[Any], layers: Layers) -> NDArray[Any]:
        """Return those of a matrix [..., L * E] that are some layers', [..., l * E]."""
        g = self.geometry
        by_layer = matrix.reshape(*matrix.shape[:-1], g.num_layers, g.num_experts)
        return by_layer[..., layers, :].reshape(*matrix.shape[:-1], -1)


def states_of(tree: DraftTree, width: int | None = None) -> NDArray[np.float32]:
    """Return the states of a tree's nodes, float32[N, D].

    Raises
    ------
    InvalidInputError
        It has none, or their width D is not `width`.
    """
    if tree.states is None:
        raise InvalidInputError(
            "the draft tree must hold the drafter's hidden states, since the predictor looks at "
            "them; it has none. Record the trace with `specfit record --states`, or call "
            "keep_states of the backend before it drafts."
        )
    if width is not None and tree.states.shape[1] != width:
        raise InvalidInputError(
            f"the drafter's hidden states must be {width} wide, as those that the predictor was "
            f"fitted on; got {tree.states.shape[1]}. Fit it on a trace of this drafter."
        )
    return tree.states


def unit_states(states: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return states [n, D] scaled to a mean square of 1 each."""
    wide = states.astype(np.float64)
    scaled: NDArray[np.float64] = wide / np.sqrt(
        np.mean(wide**2, axis=1, keepdims=True) + _LEAST_SQUARE
    )
    return scaled


def products(rows: NDArray[np.float64], matrix: NDArray[Any]) -> NDArray[np.float64]:
    """Return rows [n, D] times a matrix [D, R]; a row's product is the same whatever others are."""
    out = np.zeros((len(rows), matrix.shape[1]))
    _add_products(rows, matrix, out)
    return out


@kernel
def _add_products(
    rows: NDArray[np.float64], matrix: NDArray[Any], out: NDArray[np.float64]
) -> None:
    for d in range(matrix.shape[0]):
        for i in range(len(rows)):
            for r in range(matrix.shape[1]):
                out[i, r] += rows[i, d] * matrix[d, r]
