"""Log odds of probabilities, kept finite: nothing counts as surer than a floor allows.

Each source of probabilities has a floor of its own, by what its extremes are worth.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core._jit import kernel

DRAFT_FLOOR = 1e-9
"""Of a drafter's probabilities: below what float32 can tell from 1, so that only a probability of
exactly 1 is moved at the upper end. Log odds within 20.8."""

FIT_FLOOR = 1e-6
"""Of probabilities in the fit of the expert table: an expert that no token needed has a frequency
of 0, of which no likelihood can be taken. Log odds within 13.9."""

POOL_FLOOR = 1e-4
"""Of the predictors in a weighted sum: a member that is sure and wrong must not outvote the others.
Log odds within 9.3."""

PROBE_FLOOR = 2e-3
"""Of a linear map's predictions, which are no probabilities: some lie below 0 or above 1, and how
far says little. Log odds within 6.3."""


@kernel
def log_odds_of(prob: float, floor: float) -> float:
    """Return the log odds of a probability that is moved into [floor, 1 - floor]."""
    inside = min(max(prob, floor), 1.0 - floor)
    return float(np.log(inside / (1.0 - inside)))


def log_odds(probs: NDArray[np.floating[Any]], floor: float) -> NDArray[np.float64]:
    """Return the log odds of probabilities that are moved into [floor, 1 - floor], same shape."""
    odds = np.empty(probs.shape)
    _fill(np.ascontiguousarray(probs, np.float64).ravel(), floor, odds.ravel())
    return odds


@kernel
def _fill(probs: NDArray[np.float64], floor: float, out: NDArray[np.float64]) -> None:
    for i in range(len(probs)):
        out[i] = log_odds_of(probs[i], floor)
