"""Prints how far predicted probabilities are from what happened, and what chance alone gives."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.reliability import NUM_BINS, reliability

NUM_DRAWS = 100
_SEED = 0


@dataclass(frozen=True)
class Chance:
    """Calibration errors of predictions that are right, from repeated draws of what happens.

    Parameters
    ----------
    outcomes : int
        Distinct outcomes: what two predictions speak of is drawn once.
    ece : float
        Mean expected calibration error.
    ece_95 : float
        The error that 19 of 20 draws stay below.
    """

    outcomes: int
    ece: float
    ece_95: float


def chance(probs: NDArray[np.floating], outcomes: NDArray[np.int64]) -> Chance:
    """Return the calibration errors if every prediction were right and outcomes independent.

    Parameters
    ----------
    outcomes : int64[n]
        Equal where two predictions speak of one outcome, as replays of one text at several cache
        sizes do. Their order does not matter, nor does their size.
    """
    known, which = np.unique(outcomes, return_inverse=True)
    p = probs.astype(np.float64)
    bins = np.minimum((p * NUM_BINS).astype(np.int64), NUM_BINS - 1)
    rng = np.random.default_rng(_SEED)
    errors = np.empty(NUM_DRAWS)
    for draw in range(NUM_DRAWS):
        happened = rng.random(len(known))[which] < p
        errors[draw] = np.abs(np.bincount(bins, p - happened, NUM_BINS)).sum() / len(p)
    return Chance(len(known), float(errors.mean()), float(np.quantile(errors, 0.95)))


def print_groups(
    title: str,
    names: list[str],
    groups: NDArray[np.integer],
    before: NDArray[np.floating],
    after: NDArray[np.floating],
    happened: NDArray[np.bool_],
    outcomes: NDArray[np.int64],
) -> dict[str, dict[str, dict[str, float]]]:
    """Print one line a group, before and after calibration; return what was printed.

    Parameters
    ----------
    names : list of str
        Of groups 0, 1, ..
    groups : int[n]
        Group of each prediction; negative ones are left out.
    outcomes : int64[n]
        As `chance` takes them; it is given what was predicted after calibration.
    """
    print(
        f"\n{title:34s}{'n':>9s}{'distinct':>9s}{'realised':>10s}{'before':>9s}{'ECE':>8s}"
        f"{'Brier':>8s}{'after':>9s}{'ECE':>8s}{'Brier':>8s}{'chance':>8s}{'95 %':>8s}"
    )
    found: dict[str, dict[str, dict[str, float]]] = {}
    for group, name in enumerate(names):
        inside = groups == group
        if not inside.any():
            continue
        old, new = (reliability(p[inside], happened[inside]) for p in (before, after))
        alone = chance(after[inside], outcomes[inside])
        print(
            f"  {name:32s}{new.count:9d}{alone.outcomes:9d}{new.realised:10.4f}"
            f"{old.predicted:9.4f}{old.ece:8.4f}{old.brier:8.4f}{new.predicted:9.4f}{new.ece:8.4f}"
            f"{new.brier:8.4f}{alone.ece:8.4f}{alone.ece_95:8.4f}"
        )
        found[name] = {"before": vars(old), "after": vars(new), "chance": vars(alone)}
    return found
