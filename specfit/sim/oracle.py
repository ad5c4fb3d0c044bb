"""Predictors that know the routing of a trace: references for a simulation, never for live use.

They break rule V4 of the predictor contract on purpose: they say what a choice would be worth if
the experts were known, and are labelled so wherever they appear.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError
from specfit.core.experts import ExpertCoverage, ModelGeometry
from specfit.core.history import RoutingHistory
from specfit.core.predictor import predictors
from specfit.core.tree import DraftTree
from specfit.sim.replay import ReplayBackend, TraceReference


@predictors.register("oracle")
@dataclass
class Oracle(TraceReference):
    """Say for certain what the trace holds: probabilities 0 and 1; simulator only."""

    _backend: ReplayBackend | None = field(default=None, init=False, repr=False, compare=False)

    def connect(self, backend: ReplayBackend) -> None:
        """See `TraceReference.connect`."""
        self._backend = backend

    def predict(self, tree: DraftTree, history: RoutingHistory, first: int) -> NDArray[np.float32]:
        """Return 1 for the experts that the target was recorded to use, float32[N - first, L, E].

        Raises
        ------
        InvalidInputError
            The oracle is connected to no trace: it is used live.
        """
        return self._needed(tree, first).astype(np.float32)

    def _needed(self, tree: DraftTree, first: int) -> NDArray[np.bool_]:
        if self._backend is None:
            raise InvalidInputError(
                "an oracle knows recorded routing only. Use it with replay or sweep, not live."
            )
        routing = self._backend.node_routing(tree)[first:]
        return ExpertCoverage(routing, self._backend.geometry.num_experts).mask


@predictors.register("noisy-oracle")
@dataclass
class NoisyOracle(Oracle):
    """Know each needed expert with a given probability; simulator only.

    It names K experts a layer. Each needed expert is among them with probability `recall`; the
    rest are others, drawn at random. What it says of a named expert and of the others is
    calibrated: ``recall`` and ``(1 - recall) K / (E - K)``.

    Parameters
    ----------
    recall : float
        From ``K / E``, which is guessing, to 1, which is the oracle.
    key : int
        Of the noise. A node of a text has the same noise whenever it is asked for.
    """

    recall: float = 0.8
    key: int = 0

    def __post_init__(self) -> None:
        if not 0 <= self.recall <= 1:
            raise InvalidInputError(f"recall must be between 0 and 1; got {self.recall}.")

    def predict(self, tree: DraftTree, history: RoutingHistory, first: int) -> NDArray[np.float32]:
        """Return calibrated probabilities of the named and of the other experts."""
        needed = self._needed(tree, first)
        assert self._backend is not None, "checked before"
        low, high = self._levels(self._backend.geometry)
        probs = np.empty(needed.shape, np.float32)
        for row in range(len(needed)):
            noise = self._noise(tree, first + row, history.num_tokens)
            probs[row] = np.where(self._named(needed[row], noise), high, low)
        return probs

    def _levels(self, geometry: ModelGeometry) -> tuple[float, float]:
        k, num_experts = geometry.experts_per_token, geometry.num_experts
        return (1 - self.recall) * k / max(num_experts - k, 1), self.recall

    def _noise(self, tree: DraftTree, node: int, num_tokens: int) -> np.random.Generator:
        path = tree.tokens[list(tree.path(node))].tolist()
        return np.random.default_rng([self.key, num_tokens, *path])

    def _named(self, needed: NDArray[np.bool_], noise: np.random.Generator) -> NDArray[np.bool_]:
        """Return the named experts, bool[L, E]: as many as are needed, `recall` of them right."""
        is_lost = needed & (noise.random(needed.shape) >= self.recall)
        order = np.argsort(np.where(needed, 2.0, noise.random(needed.shape)), axis=1)
        place = np.argsort(order, axis=1)  # of each expert; those that are not needed come first
        others: NDArray[np.bool_] = place < is_lost.sum(axis=1, keepdims=True)
        return (needed & ~is_lost) | (others & ~needed)
