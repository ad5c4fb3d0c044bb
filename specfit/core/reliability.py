"""How far predicted probabilities are from what happened: ECE, Brier score, and the curve."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

NUM_BINS = 20


@dataclass(frozen=True)
class Reliability:
    """Predictions of one group against what happened.

    Parameters
    ----------
    count : int
        Predictions.
    predicted, realised : float
        Mean probability, and share that happened.
    ece : float
        Expected calibration error over 20 equal bins of the probability.
    brier : float
        Mean squared difference of probability and outcome.
    """

    count: int
    predicted: float
    realised: float
    ece: float
    brier: float


@dataclass(frozen=True, eq=False)
class ReliabilityCurve:
    """Realised share by predicted probability.

    Parameters
    ----------
    label : str
        Name in the picture.
    counts : int64[20]
        Predictions of each bin.
    predicted, realised : float64[20]
        Mean probability, and share that happened; NaN in an empty bin.
    """

    label: str
    counts: NDArray[np.int64]
    predicted: NDArray[np.float64]
    realised: NDArray[np.float64]


def reliability(probs: NDArray[np.floating], happened: NDArray[np.bool_]) -> Reliability:
    """Compare predictions with what happened; arrays of one shape, at least one prediction."""
    p, y = probs.astype(np.float64).ravel(), happened.astype(np.float64).ravel()
    gaps = np.abs(np.bincount(_bins(p), p - y, NUM_BINS))
    return Reliability(
        count=len(p),
        predicted=float(p.mean()),
        realised=float(y.mean()),
        ece=float(gaps.sum() / len(p)),
        brier=float(((p - y) ** 2).mean()),
    )


def reliability_curve(
    label: str, probs: NDArray[np.floating], happened: NDArray[np.bool_]
) -> ReliabilityCurve:
    """Return the realised share in each of 20 equal bins of the probability."""
    p, y = probs.astype(np.float64).ravel(), happened.astype(np.float64).ravel()
    bins = _bins(p)
    counts = np.bincount(bins, minlength=NUM_BINS)
    filled = np.where(counts > 0, counts, np.nan)
    predicted = np.bincount(bins, p, NUM_BINS) / filled
    return ReliabilityCurve(label, counts, predicted, np.bincount(bins, y, NUM_BINS) / filled)


def _bins(probs: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.minimum((probs * NUM_BINS).astype(np.int64), NUM_BINS - 1)
