"""Fits acceptance calibrations: temperatures, isotonic steps, a logistic curve, curves by cell."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError, did_you_mean
from specfit.core.predictor import AcceptanceModel, acceptance_models
from specfit.policies.acceptance.acceptance_curves import CURVES_FILE
from specfit.policies.acceptance.calibrated import Calibrated, Calibration, drafted_log_odds
from specfit.policies.acceptance.isotonic import Isotonic
from specfit.policies.acceptance.logistic import NUM_FEATURES, Logistic, features
from specfit.policies.acceptance.temperature import Temperature
from specfit.policies.fitting.acceptance_curves import (
    CELL_PENALTY,
    NUM_DEPTHS,
    NUM_RANKS,
    AcceptanceSample,
    continuation_shares,
    fit_acceptance_curves,
    logistic,
)

METHODS = ("temperature", "isotonic", "logistic", "depth-rank")
"""Acceptance models that can be fitted."""

NUM_BINS = 24
BIN_PENALTY = 4.0
"""Pull of a cell's bin to that of its rank, in nodes."""

_RIDGE = 1e-2


def fit_temperature(sample: AcceptanceSample) -> dict[str, NDArray[np.float64]]:
    """Return the inverse temperature of each depth and rank, [D, R].

    All nodes give the common one; each rank's is pulled to it, each cell's to its rank's.
    """
    x, y = drafted_log_odds(sample.log_probs)[:, None], sample.accepted.astype(np.float64)
    common = logistic(x, y, np.ones(1), _RIDGE)
    inverse = np.empty((NUM_DEPTHS, NUM_RANKS))
    depths, ranks = _cells(sample)
    for rank in range(NUM_RANKS):
        of_rank = ranks == rank
        pooled = logistic(x[of_rank], y[of_rank], common, CELL_PENALTY)
        for depth in range(NUM_DEPTHS):
            cell = of_rank & (depths == depth)
            inverse[depth, rank] = logistic(x[cell], y[cell], pooled, CELL_PENALTY)[0]
    return {"inverse_temperatures": inverse}


def fit_isotonic(sample: AcceptanceSample) -> dict[str, NDArray[np.float64]]:
    """Return bin edges of log q and the non-decreasing value of each bin, [D, R, B].

    Each bin of a cell is pulled to that of its rank, as if `BIN_PENALTY` more nodes said so.
    """
    log_probs = sample.log_probs.astype(np.float64)
    edges = np.unique(np.quantile(log_probs, np.linspace(0, 1, NUM_BINS + 1)[1:-1]))
    bins = np.searchsorted(edges, log_probs)
    num_bins = len(edges) + 1
    sums = np.bincount(bins, np.exp(log_probs), num_bins).astype(np.float64)
    centres = sums / np.maximum(np.bincount(bins, minlength=num_bins), 1)
    depths, ranks = _cells(sample)
    values = np.empty((NUM_DEPTHS, NUM_RANKS, num_bins))
    for rank in range(NUM_RANKS):
        of_rank = ranks == rank
        pooled = _steps(bins[of_rank], sample.accepted[of_rank], centres, 1.0)
        for depth in range(NUM_DEPTHS):
            cell = of_rank & (depths == depth)
            values[depth, rank] = _steps(bins[cell], sample.accepted[cell], pooled, BIN_PENALTY)
    return {"edges": edges, "values": values}


def fit_logistic(sample: AcceptanceSample) -> dict[str, NDArray[np.float64]]:
    """Return the weights of one curve for all nodes."""
    x = features(sample.log_probs, sample.depths, sample.ranks, sample.entropies)
    start = np.zeros(NUM_FEATURES)
    return {"weights": logistic(x, sample.accepted.astype(np.float64), start, _RIDGE)}


def pool_adjacent_violators(
    values: NDArray[np.float64], weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the non-decreasing sequence nearest to `values` in weighted squares; weights > 0."""
    blocks: list[tuple[float, float, int]] = []  # mean, weight, length
    for value, weight in zip(values.tolist(), weights.tolist(), strict=True):
        blocks.append((value, weight, 1))
        while len(blocks) > 1 and blocks[-2][0] > blocks[-1][0]:
            (a, wa, na), (b, wb, nb) = blocks[-2:]
            blocks[-2:] = [((a * wa + b * wb) / (wa + wb), wa + wb, na + nb)]
    means, _, lengths = zip(*blocks, strict=True)
    return np.repeat(np.array(means), lengths)


def _steps(
    bins: NDArray[np.intp],
    accepted: NDArray[np.bool_],
    prior: NDArray[np.float64],
    prior_weight: float,
) -> NDArray[np.float64]:
    """Return the non-decreasing share of each bin, pulled to `prior`."""
    counts = np.bincount(bins, minlength=len(prior)).astype(np.float64) + prior_weight
    hits = np.bincount(bins, accepted, len(prior)).astype(np.float64) + prior_weight * prior
    return pool_adjacent_violators(hits / counts, counts)


def _cells(sample: AcceptanceSample) -> tuple[NDArray[Any], NDArray[Any]]:
    depths = np.minimum(sample.depths, NUM_DEPTHS) - 1
    return depths, np.minimum(sample.ranks, NUM_RANKS - 1)


_Fitter = Callable[[AcceptanceSample], dict[str, NDArray[np.float64]]]
_CALIBRATED: dict[str, tuple[type[Calibrated], _Fitter]] = {
    "temperature": (Temperature, fit_temperature),
    "isotonic": (Isotonic, fit_isotonic),
    "logistic": (Logistic, fit_logistic),
}


@dataclass(frozen=True)
class AcceptanceFit:
    """What a fit of an acceptance model is made from, whatever its method.

    Parameters
    ----------
    sample : AcceptanceSample
        Judged nodes; at least one of a text that does not loop. Those of looping texts say what a
        repetition is worth, which ``depth-rank`` alone keeps.
    temperature : float
        Temperature of the target in that sample; 0 is greedy.
    fitted_on : str
        Fingerprint of the target and the head.
    provenance : mapping
        Written beside the numbers.
    """

    sample: AcceptanceSample
    temperature: float
    fitted_on: str
    provenance: Mapping[str, Any]

    def write(self, method: str, folder: Path) -> AcceptanceModel:
        """Fit by this method, write the numbers to `folder`, and return the model read from there.

        Raises
        ------
        InvalidInputError
            There is no such method, or nothing was judged.
        """
        if method not in METHODS:
            raise InvalidInputError(
                f"no acceptance model '{method}' can be fitted.{did_you_mean(method, METHODS)} "
                f"Methods: {', '.join(METHODS)}."
            )
        usual = self.sample.where(~self.sample.looping)
        if len(usual.accepted) == 0:
            raise InvalidInputError(
                "an acceptance model is fitted on drafted nodes of texts that do not loop; got "
                "none. Record a trace with drafts."
            )
        if method == "depth-rank":
            curves = fit_acceptance_curves({self.temperature: self.sample}, self.fitted_on)
            curves.save(CURVES_FILE, folder, self.provenance)
            params = {"folder": str(folder), "temperature": self.temperature}
            return acceptance_models.build(method, params)
        cls, fit = _CALIBRATED[method]
        calibration = Calibration(self.fitted_on, continuation_shares(usual), fit(usual))
        calibration.save(cls.file, folder, self.provenance)
        return acceptance_models.build(method, {"folder": str(folder)})
