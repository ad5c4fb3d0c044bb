"""The two predictions that selection rests on: a node's experts, and whether it is accepted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from specfit.core.experts import ModelGeometry
from specfit.core.history import RoutingHistory
from specfit.core.registry import Registry
from specfit.core.tree import DraftTree

if TYPE_CHECKING:
    from specfit.core.policy import Outcome


class CoveragePredictor(ABC):
    """Predicts the routing of draft nodes before the target has seen them, as probabilities."""

    @property
    def novelty(self) -> float:
        """What each level leaves of the chance to need an expert that is new to the path; 0 to 1.

        The tokens of a path tend to need the same experts. So a node at depth d, predicted to need
        an expert with probability p, needs it only with ``p (p + novelty**d (1 - p))`` if none of
        its ancestors does. 1: needs are independent given the predictions, so that it stays p.
        """
        return 1.0

    @property
    def needs_states(self) -> bool:
        """Whether it looks at `DraftTree.states`, which are kept for those alone that do."""
        return False

    @abstractmethod
    def predict(self, tree: DraftTree, history: RoutingHistory, first: int) -> NDArray[np.float32]:
        """Return the probability that each node from `first` on is routed to each expert.

        Parameters
        ----------
        tree : DraftTree
            N nodes; those before `first` were asked for already.
        history : RoutingHistory
            Routing of the committed text.
        first : int
            First node of the answer.

        Returns
        -------
        float32[N - first, L, E]
            In [0, 1]; sums to K over the experts of a layer (up to 1e-3 relative).
        """

    def predict_layers(
        self, tree: DraftTree, history: RoutingHistory, first: int, layers: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """Return what `predict` says of some layers, float32[N - first, l, E].

        For a policy that looks at a sample of the layers. By default all are predicted; to predict
        those alone is faster.

        Parameters
        ----------
        tree, history, first
            See `predict`.
        layers : bool[L]
            The l layers that are looked at.
        """
        return self.predict(tree, history, first)[:, layers]

    def check_geometry(self, geometry: ModelGeometry) -> None:  # noqa: B027 - optional hook
        """Raise `CheckpointError` if this predictor was fitted for a model of another shape."""

    def to_spec(self) -> dict[str, Any]:
        """Return the name and parameters from which an equal predictor can be made."""
        return predictors.spec_of(self)


class AcceptanceModel(ABC):
    """Turns the drafter's probabilities into calibrated probabilities of acceptance."""

    @abstractmethod
    def calibrate(self, tree: DraftTree) -> NDArray[np.float64]:
        """Return the probability that each node is accepted given that its parent is.

        Returns
        -------
        float64[N]
            1 at the root; siblings sum to at most 1. A node's value does not depend on later
            levels.
        """

    @abstractmethod
    def continuation(self, depth: int, top_k: int) -> float:
        """Return the probability that one of `top_k` children at `depth` is the target's token.

        Given that their parent at ``depth - 1`` is accepted and before they are drafted; `depth` is
        1 or more.
        """

    def observe(self, outcome: Outcome) -> None:  # noqa: B027 - optional hook
        """Take note of what came of a cycle."""

    def reset(self) -> None:  # noqa: B027 - optional hook
        """Forget what earlier requests taught."""

    def to_spec(self) -> dict[str, Any]:
        """Return the name and parameters from which an equal model can be made."""
        return acceptance_models.spec_of(self)


predictors: Registry[CoveragePredictor] = Registry("predictor", "specfit.predictors")
acceptance_models: Registry[AcceptanceModel] = Registry("acceptance model", "specfit.acceptance")
