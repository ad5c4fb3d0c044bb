"""The token table as a predictor: the experts a token usually needs, and those needed lately."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from specfit.core.experts import ModelGeometry
from specfit.core.history import RoutingHistory
from specfit.core.predictor import CoveragePredictor, predictors
from specfit.core.tree import DraftTree
from specfit.policies.predictors.expert_table import NO_PARENT, ExpertTable
from specfit.policies.predictors.geometry import check_same_shape


@predictors.register("token-table")
@dataclass(frozen=True)
class TokenTable(CoveragePredictor):
    """Predict a node's experts from its token, its parent's token, and the experts' ages.

    Parameters
    ----------
    folder : str
        Folder of the fitted table; read when first needed.
    """

    folder: str

    @cached_property
    def table(self) -> ExpertTable:
        """The fitted numbers."""
        return ExpertTable.load(Path(self.folder))

    @property
    def geometry(self) -> ModelGeometry:
        """Shape of the target that it was fitted on."""
        return self.table.geometry

    @property
    def fitted_on(self) -> str:
        """Fingerprint of the target that it was fitted on."""
        return self.table.fitted_on

    def predict(self, tree: DraftTree, history: RoutingHistory, first: int) -> NDArray[np.float32]:
        """Return each expert's probability for nodes `first` to N, float32[N - first, L, E]."""
        parent_tokens = tree.tokens[tree.parents[first:]]
        if first == 0:
            parent_tokens[0] = NO_PARENT
        return self.table.probs(
            tree.tokens[first:],
            parent_tokens,
            tree.depths[first:],
            history.ages,
            history.num_tokens,
        )

    def check_geometry(self, geometry: ModelGeometry) -> None:
        """Raise `CheckpointError` if the table was fitted on a model of another shape."""
        check_same_shape(self.table.geometry, geometry, f"the token table in {self.folder}")
