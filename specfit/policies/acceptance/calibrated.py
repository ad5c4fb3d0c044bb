"""What acceptance models share that map the drafter's probability by fitted numbers."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError
from specfit.core.predictor import AcceptanceModel
from specfit.core.tree import DraftTree
from specfit.policies.acceptance._siblings import cap_siblings
from specfit.policies.fitted_file import FittedFile, TensorSpec
from specfit.policies.fitted_numbers import FittedNumbers
from specfit.policies.log_odds import DRAFT_FLOOR, log_odds

_FLOAT = np.dtype(np.float64)


def calibration_file(kind: str, **axes: int) -> FittedFile:
    """Return the layout of a calibration's file; `axes` names its own tensors."""
    axes = {"continuations": 2, **axes}
    return FittedFile(kind, 1, {name: TensorSpec(_FLOAT, ndim) for name, ndim in axes.items()})


def within_siblings(tree: DraftTree, probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return probabilities of which each is at most what its earlier siblings leave of 1."""
    capped = np.empty(len(tree))
    cap_siblings(tree.parents, probs, capped)
    return capped


def drafted_log_odds(log_probs: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the log odds of the drafter's probabilities, kept finite."""
    return log_odds(np.exp(log_probs.astype(np.float64)), DRAFT_FLOOR)


@dataclass(frozen=True, eq=False)
class Calibration(FittedNumbers):
    """The fitted numbers of a calibration.

    Parameters
    ----------
    fitted_on : str
        Fingerprint of the target and the head.
    continuations : float64[D, C]
        Probability that one of the best 1 .. C children at a depth is the target's token.
    numbers : mapping of str to float64 array
        What the map from the drafter's probability is made of.
    """

    rest = "numbers"

    fitted_on: str
    continuations: NDArray[np.float64]
    numbers: Mapping[str, NDArray[np.float64]]

    def __post_init__(self) -> None:
        shares = self.continuations
        is_share = shares.size > 0 and bool(((shares >= 0) & (shares <= 1)).all())
        if not is_share or bool((np.diff(shares, axis=1) < 0).any()):
            raise InvalidInputError(
                "continuations must be probabilities that do not fall as children are added. "
                "Fit again."
            )
        for name, array in self.numbers.items():
            if array.size == 0 or not np.isfinite(array).all():
                raise InvalidInputError(f"{name} must be finite and not empty. Fit again.")
        super().__post_init__()


class Calibrated(AcceptanceModel):
    """An acceptance model that maps each node's own features; siblings sum to at most 1."""

    folder: str
    file: ClassVar[FittedFile]

    @cached_property
    def fit(self) -> Calibration:
        """The fitted numbers; read when first needed."""
        return Calibration.load(self.file, Path(self.folder))

    @property
    def fitted_on(self) -> str:
        """Fingerprint of the target and the head that it was fitted on."""
        return self.fit.fitted_on

    @abstractmethod
    def map(self, tree: DraftTree) -> NDArray[np.float64]:
        """Return each node's probability before siblings are kept within 1, float64[N]."""

    def calibrate(self, tree: DraftTree) -> NDArray[np.float64]:
        """Return each node's acceptance probability given its parent, float64[N]."""
        return within_siblings(tree, self.map(tree))

    def continuation(self, depth: int, top_k: int) -> float:
        """Return the probability that one of `top_k` children at `depth` is the target's token."""
        num_depths, num_ranks = self.fit.continuations.shape
        return float(self.fit.continuations[min(depth, num_depths) - 1, min(top_k, num_ranks) - 1])


def cell_of(tree: DraftTree, shape: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return each node's depth and rank as indices of a table [D, R, ...]; the last serve beyond.

    The root counts as a first child.
    """
    depths = np.clip(tree.depths, 1, shape[0]) - 1
    return depths, np.minimum(tree.ranks, shape[1] - 1)
