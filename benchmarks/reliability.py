"""How far predicted probabilities are from what happened: bins, ECE and Brier score."""

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


def reliability(probs: NDArray[np.floating], happened: NDArray[np.bool_]) -> Reliability:
    """Compare predictions with what happened; arrays of one shape, at least one prediction."""
    p, y = probs.astype(np.float64).ravel(), happened.astype(np.float64).ravel()
    bins = np.minimum((p * NUM_BINS).astype(np.int64), NUM_BINS - 1)
    gaps = np.abs(np.bincount(bins, p - y, NUM_BINS))
    return Reliability(
        count=len(p),
        predicted=float(p.mean()),
        realised=float(y.mean()),
        ece=float(gaps.sum() / len(p)),
        brier=float(((p - y) ** 2).mean()),
    )


def print_groups(
    title: str,
    names: list[str],
    groups: NDArray[np.integer],
    before: NDArray[np.floating],
    after: NDArray[np.floating],
    happened: NDArray[np.bool_],
) -> dict[str, dict[str, dict[str, float]]]:
    """Print one line a group, before and after calibration; return what was printed.

    Parameters
    ----------
    names : list of str
        Of groups 0, 1, ..
    groups : int[n]
        Group of each prediction; negative ones are left out.
    """
    print(
        f"\n{title:34s}{'n':>9s}{'realised':>10s}{'before':>9s}{'ECE':>8s}{'Brier':>8s}"
        f"{'after':>9s}{'ECE':>8s}{'Brier':>8s}"
    )
    found: dict[str, dict[str, dict[str, float]]] = {}
    for group, name in enumerate(names):
        inside = groups == group
        if not inside.any():
            continue
        old, new = (reliability(p[inside], happened[inside]) for p in (before, after))
        print(
            f"  {name:32s}{new.count:9d}{new.realised:10.4f}{old.predicted:9.4f}{old.ece:8.4f}"
            f"{old.brier:8.4f}{new.predicted:9.4f}{new.ece:8.4f}{new.brier:8.4f}"
        )
        found[name] = {"before": vars(old), "after": vars(new)}
    return found
