"""A logistic curve that is learnt while decoding, and forgets: nothing has to be fitted before.

An online Newton step a cycle on the curve of `logistic`, from the drafter's own probabilities on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError
from specfit.core.observed import ObservedDraft
from specfit.core.policy import Outcome
from specfit.core.predictor import AcceptanceModel, acceptance_models
from specfit.core.tree import DraftTree
from specfit.policies.acceptance.calibrated import within_siblings
from specfit.policies.acceptance.logistic import NUM_FEATURES, features

NUM_RANKS = 64
_AS_DRAFTED = np.array([0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
_MOST = 30.0


@acceptance_models.register("online")
@dataclass
class Online(AcceptanceModel):
    """Learn a logistic curve from each cycle's outcome; a request starts as drafted.

    Parameters
    ----------
    memory : float
        Weight of a cycle's evidence after each further cycle, in [0, 1); 0.99 looks back on about
        a hundred cycles.
    caution : float
        Evidence, in judged nodes of unit curvature, that the start counts for.
    """

    memory: float = 0.99
    caution: float = 20.0
    _weights: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    _curvature: NDArray[np.float64] = field(init=False, repr=False, compare=False)
    _parents: float = field(init=False, repr=False, compare=False)
    _hits: NDArray[np.float64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not (0 <= self.memory < 1 and self.caution > 0):
            raise InvalidInputError(
                f"memory must be in [0, 1) and caution above 0; got {self.memory} and "
                f"{self.caution}."
            )
        self.reset()

    def calibrate(self, tree: DraftTree) -> NDArray[np.float64]:
        """Return each node's acceptance probability given its parent, float64[N]."""
        x = features(tree.log_probs, tree.depths, tree.ranks, tree.entropies)
        return within_siblings(tree, self._probs(x))

    def continuation(self, depth: int, top_k: int) -> float:
        """Return how often one of the best `top_k` children was right, at any depth.

        1 at first, so that no continuation is ruled out before anything is known.
        """
        hits = self._hits[: min(top_k, NUM_RANKS)].sum()
        return min(float((self.caution + hits) / (self.caution + self._parents)), 1.0)

    def observe(self, outcome: Outcome) -> None:
        """Learn from all children of the accepted path, verified or not."""
        draft = _observed(outcome)
        self._learn(draft.tree, *draft.judged())

    def reset(self) -> None:
        """Return to the drafter's own probabilities."""
        self._weights = _AS_DRAFTED
        self._curvature = np.zeros((NUM_FEATURES, NUM_FEATURES))
        self._parents, self._hits = 0.0, np.zeros(NUM_RANKS)

    def _learn(self, tree: DraftTree, nodes: NDArray[np.intp], accepted: NDArray[np.bool_]) -> None:
        if len(nodes) == 0:
            return
        self._count(tree, nodes, accepted)
        x = features(
            tree.log_probs[nodes], tree.depths[nodes], tree.ranks[nodes], tree.entropies[nodes]
        )
        probs = self._probs(x)
        self._curvature *= self.memory
        self._curvature += (x * (probs * (1 - probs))[:, None]).T @ x
        pull = self._curvature + self.caution * np.eye(NUM_FEATURES)
        self._weights = self._weights + np.linalg.solve(pull, x.T @ (accepted - probs))

    def _probs(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        scores = np.clip(x @ self._weights, -_MOST, _MOST)
        probs: NDArray[np.float64] = 1.0 / (1.0 + np.exp(-scores))
        return probs

    def _count(self, tree: DraftTree, nodes: NDArray[np.intp], accepted: NDArray[np.bool_]) -> None:
        self._parents = self.memory * self._parents + len(np.unique(tree.parents[nodes]))
        self._hits *= self.memory
        ranks = np.minimum(tree.ranks[nodes[accepted]], NUM_RANKS - 1)
        np.add.at(self._hits, ranks, 1.0)


def _observed(outcome: Outcome) -> ObservedDraft:
    answer = outcome.verification
    return ObservedDraft(0, outcome.cycle.tree, answer.nodes, answer.target_tokens, answer.routing)
