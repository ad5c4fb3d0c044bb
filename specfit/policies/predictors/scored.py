"""What predictors share that score experts by the history alone, whatever the node's token is.

A node at depth d is predicted with log odds ``slopes[s, l] * score + intercepts[s, l]``, s being d
or the last fitted depth; one factor a layer then makes the probabilities sum to K.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import CheckpointError, InvalidInputError
from specfit.core.history import RoutingHistory
from specfit.core.tree import DraftTree
from specfit.policies.fitted_file import FittedFile, TensorSpec
from specfit.policies.fitted_numbers import PredictorNumbers
from specfit.policies.predictors._normalise import normalise
from specfit.policies.predictors.fitted import FittedPredictor

_FLOAT = np.dtype(np.float64)

Layers: TypeAlias = slice | NDArray[np.bool_]
"""The l layers to look at: a mask, bool[L], or `EVERY_LAYER`."""

EVERY_LAYER = slice(None)


def scored_file(kind: str, **extra: int) -> FittedFile:
    """Return the layout of a scored predictor's file; `extra` names further tensors' axes."""
    axes = {"slopes": 2, "intercepts": 2, **extra}
    return FittedFile(kind, 1, {name: TensorSpec(_FLOAT, ndim) for name, ndim in axes.items()})


def probs_of(logits: NDArray[np.float64], experts_per_token: int) -> NDArray[np.float32]:
    """Return the probabilities of log odds [n, l, E], moved so that each layer sums to K."""
    probs = np.empty(logits.shape, np.float32)
    normalise(np.ascontiguousarray(logits), float(experts_per_token), probs)
    return probs


@dataclass(frozen=True, eq=False)
class ScoreFit(PredictorNumbers):
    """The fitted numbers of a scored predictor.

    Parameters
    ----------
    geometry : ModelGeometry
        Shape of the target it was fitted on.
    fitted_on : str
        Fingerprint of that target.
    slopes, intercepts : float64[S, L]
        Of the log odds, by depth slot and layer.
    extra : mapping of str to array
        What else the scores are made of.
    """

    rest = "extra"

    slopes: NDArray[np.float64]
    intercepts: NDArray[np.float64]
    extra: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        arrays = {"slopes": self.slopes, "intercepts": self.intercepts, **self.extra}
        for name, array in arrays.items():
            if not np.isfinite(array).all():
                raise InvalidInputError(f"{name} must be finite. Fit again.")
        shape = (len(self.slopes), self.geometry.num_layers)
        if len(self.slopes) < 1 or self.slopes.shape != shape or self.intercepts.shape != shape:
            raise InvalidInputError(
                f"slopes and intercepts must be [S, L] with L = {self.geometry.num_layers}; got "
                f"{list(self.slopes.shape)} and {list(self.intercepts.shape)}. Fit again."
            )
        super().__post_init__()


class ScoredPredictor(FittedPredictor):
    """A predictor whose scores depend on the history alone; see the head of this module."""

    @cached_property
    def fit(self) -> ScoreFit:
        """The fitted numbers; read when first needed."""
        fit = ScoreFit.load(self.file, Path(self.folder))
        if not self.is_whole(fit):
            shapes = ", ".join(f"{n} {list(a.shape)}" for n, a in fit.extra.items())
            raise CheckpointError(
                f"{self.folder} holds no usable {self.file.kind}: {shapes} do not fit together, or "
                f"not the model. Fit again."
            )
        return fit

    def is_whole(self, fit: ScoreFit) -> bool:
        """Return whether the shapes of what else the scores are made of are right."""
        return True

    @abstractmethod
    def scores(self, history: RoutingHistory) -> NDArray[np.float64]:
        """Return the score of each expert, float64[S or 1, L, E]; the history is not empty."""

    def predict(self, tree: DraftTree, history: RoutingHistory, first: int) -> NDArray[np.float32]:
        """Return each expert's probability for nodes `first` to N, float32[N - first, L, E].

        With no history at all, every expert is as likely as any other.
        """
        return self._probs(tree, history, first, EVERY_LAYER)

    def predict_layers(
        self, tree: DraftTree, history: RoutingHistory, first: int, layers: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """Return each expert's probability in some layers, float32[N - first, l, E]."""
        return self._probs(tree, history, first, layers)

    def _probs(
        self, tree: DraftTree, history: RoutingHistory, first: int, layers: Layers
    ) -> NDArray[np.float32]:
        g, fit = self.geometry, self.fit
        slots = np.minimum(tree.depths[first:], len(fit.slopes) - 1)
        if history.num_tokens == 0:
            share = g.experts_per_token / g.num_experts
            return np.full((len(slots), g.num_layers, g.num_experts), share, np.float32)[:, layers]
        used, place = np.unique(slots, return_inverse=True)
        scores = self.scores(history)
        of_slot = scores[used] if len(scores) > 1 else scores
        return self._calibrated(of_slot[:, layers], used, layers)[place]

    def _calibrated(
        self, scores: NDArray[np.float64], slots: NDArray[np.intp], layers: Layers
    ) -> NDArray[np.float32]:
        """Return the probabilities of scores [n, l, E] at depth slots [n]."""
        slopes, intercepts = (a[slots][:, layers] for a in (self.fit.slopes, self.fit.intercepts))
        logits = slopes[:, :, None] * scores + intercepts[:, :, None]
        return probs_of(logits, self.geometry.experts_per_token)
