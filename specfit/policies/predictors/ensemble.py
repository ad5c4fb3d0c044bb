"""Several predictors as one: a weighted sum of their log odds, the weights fitted by layer.

A logarithmic opinion pool (C. Genest and J. V. Zidek, Statistical Science 1, 1986), whose weights
need not sum to 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError
from specfit.core.history import RoutingHistory
from specfit.core.predictor import CoveragePredictor, predictors
from specfit.core.tree import DraftTree
from specfit.policies.fitted_file import FittedFile, TensorSpec
from specfit.policies.fitted_numbers import PredictorNumbers
from specfit.policies.log_odds import POOL_FLOOR, log_odds
from specfit.policies.predictors.fitted import FittedPredictor
from specfit.policies.predictors.scored import EVERY_LAYER, Layers, probs_of

ENSEMBLE_FILE = FittedFile(
    "ensemble",
    1,
    {
        "weights": TensorSpec(np.dtype(np.float64), 2),
        "intercepts": TensorSpec(np.dtype(np.float64), 1),
    },
)


@dataclass(frozen=True, eq=False)
class EnsembleFit(PredictorNumbers):
    """The fitted numbers of an ensemble.

    Parameters
    ----------
    geometry : ModelGeometry
        Shape of the target it was fitted on.
    fitted_on : str
        Fingerprint of that target.
    members : tuple of str
        Names of the member predictors; each lies in the subfolder of its name.
    weights : float64[M, L]
        Of each member's log odds, by layer.
    intercepts : float64[L]
        Added to the sum.
    """

    members: tuple[str, ...]
    weights: NDArray[np.float64]
    intercepts: NDArray[np.float64]

    def __post_init__(self) -> None:
        shape = (len(self.members), self.geometry.num_layers)
        if self.weights.shape != shape or self.intercepts.shape != shape[1:] or not self.members:
            raise InvalidInputError(
                f"an ensemble must have members, one weight a member and layer, {list(shape)}, and "
                f"one intercept a layer, {list(shape[1:])}; got {len(self.members)} members, "
                f"{list(self.weights.shape)} and {list(self.intercepts.shape)}. Fit again."
            )
        if not (np.isfinite(self.weights).all() and np.isfinite(self.intercepts).all()):
            raise InvalidInputError("an ensemble's weights must be finite. Fit again.")
        super().__post_init__()

    @classmethod
    def read_constants(cls, constants: Mapping[str, Any]) -> dict[str, Any]:
        """See `FittedNumbers.read_constants`."""
        read = super().read_constants(constants)
        return {**read, "members": tuple(read["members"])}


@predictors.register("ensemble")
@dataclass(frozen=True)
class Ensemble(FittedPredictor):
    """Predict by a weighted sum of the members' log odds.

    Parameters
    ----------
    folder : str
        Folder that `specfit fit predictor` wrote, with a subfolder for each member.
    temperature : float
        Of the target, for the members that were fitted at several.
    """

    folder: str
    temperature: float = 0.0
    file = ENSEMBLE_FILE

    @cached_property
    def fit(self) -> EnsembleFit:
        """The fitted weights; read when first needed."""
        return EnsembleFit.load(ENSEMBLE_FILE, Path(self.folder))

    @cached_property
    def members(self) -> tuple[CoveragePredictor, ...]:
        """The member predictors, in the order of the weights."""
        made = tuple(self._member(name) for name in self.fit.members)
        for member in made:
            member.check_geometry(self.fit.geometry)
        return made

    @property
    def novelty(self) -> float:
        """See `CoveragePredictor.novelty`: that of the member fitted with one; others leave 1."""
        return min(member.novelty for member in self.members)

    @property
    def needs_states(self) -> bool:
        """See `CoveragePredictor.needs_states`: whether a member does."""
        return any(member.needs_states for member in self.members)

    def predict(self, tree: DraftTree, history: RoutingHistory, first: int) -> NDArray[np.float32]:
        """Return each expert's probability for nodes `first` to N, float32[N - first, L, E]."""
        probs = [member.predict(tree, history, first) for member in self.members]
        return self._pooled(probs, EVERY_LAYER)

    def predict_layers(
        self, tree: DraftTree, history: RoutingHistory, first: int, layers: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """Return each expert's probability in some layers, float32[N - first, l, E]."""
        probs = [member.predict_layers(tree, history, first, layers) for member in self.members]
        return self._pooled(probs, layers)

    def _pooled(self, probs: Sequence[NDArray[np.float32]], layers: Layers) -> NDArray[np.float32]:
        weights, intercepts = self.fit.weights[:, layers], self.fit.intercepts[layers]
        logits = pooled_logits(probs, weights) + intercepts[:, None]
        return probs_of(logits, self.geometry.experts_per_token)

    def _member(self, name: str) -> CoveragePredictor:
        params: dict[str, Any] = {"folder": str(Path(self.folder) / name)}
        cls: Any = predictors.get(name)
        if "temperature" in {f.name for f in fields(cls)}:
            params["temperature"] = self.temperature
        return predictors.build(name, params)


def pooled_logits(
    probs: Sequence[NDArray[np.float32]], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the weighted sum of log odds, float64[n, l, E], by member and layer [M, l]."""
    parts = [w[:, None] * log_odds(p, POOL_FLOOR) for p, w in zip(probs, weights, strict=True)]
    total: NDArray[np.float64] = np.sum(parts, axis=0)
    return total
