"""The token table as a predictor: the experts a token usually needs, and those needed lately."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from specfit.core.history import RoutingHistory
from specfit.core.predictor import predictors
from specfit.core.tree import DraftTree
from specfit.policies.predictors.expert_table import NO_PARENT, TABLE_FILE, ExpertTable
from specfit.policies.predictors.fitted import FittedPredictor


@predictors.register("token-table")
@dataclass(frozen=True)
class TokenTable(FittedPredictor):
    """Predict a node's experts from its token, its parent's token, and the experts' ages.

    Parameters
    ----------
    folder : str
        Folder of the fitted table; read when first needed.
    temperature : float
        Of the target: chooses among the fitted ones, and lies between two.
    """

    folder: str
    temperature: float = 0.0
    file = TABLE_FILE

    @cached_property
    def fit(self) -> ExpertTable:
        """The fitted table of this temperature; read when first needed."""
        return ExpertTable.load(TABLE_FILE, Path(self.folder)).at(self.temperature)

    @property
    def novelty(self) -> float:
        """See `CoveragePredictor.novelty`."""
        return self.fit.novelty

    def predict(self, tree: DraftTree, history: RoutingHistory, first: int) -> NDArray[np.float32]:
        """Return each expert's probability for nodes `first` to N, float32[N - first, L, E]."""
        return self._probs(tree, history, first, None)

    def predict_layers(
        self, tree: DraftTree, history: RoutingHistory, first: int, layers: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        """Return each expert's probability in some layers, float32[N - first, l, E]."""
        return self._probs(tree, history, first, layers)

    def _probs(
        self,
        tree: DraftTree,
        history: RoutingHistory,
        first: int,
        layers: NDArray[np.bool_] | None,
    ) -> NDArray[np.float32]:
        parent_tokens = tree.tokens[tree.parents[first:]]
        if first == 0:
            parent_tokens[0] = NO_PARENT
        tokens, depths = tree.tokens[first:], tree.depths[first:]
        return self.fit.probs(tokens, parent_tokens, depths, history.ages, layers)
