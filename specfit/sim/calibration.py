"""What selections expected, held against what came of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.decode import CycleRecord


@dataclass(frozen=True, eq=False)
class Calibration:
    """What the selections that carry a prediction expected, against what came of them.

    Parameters
    ----------
    predicted_committed, realised_committed : float
        Sums over those cycles but the ones that end their text, which are cut.
    predicted_misses, realised_misses : float
        Sums over those cycles; realised are the experts that were needed and not resident when
        their cycle began (`Outcome.num_missing`), however early they were copied.
    cycle_errors : float64[n]
        ``|predicted - actual| / actual`` cycle seconds of those cycles.
    """

    predicted_committed: float
    realised_committed: float
    predicted_misses: float
    realised_misses: float
    cycle_errors: NDArray[np.float64]

    @property
    def committed_ratio(self) -> float:
        """Predicted over realised committed tokens; NaN where nothing was predicted."""
        return _ratio(self.predicted_committed, self.realised_committed)

    @property
    def misses_ratio(self) -> float:
        """Predicted over realised misses; NaN where nothing was predicted."""
        return _ratio(self.predicted_misses, self.realised_misses)

    @property
    def cycle_error_median(self) -> float:
        """Median relative error of the predicted cycle seconds; NaN where nothing was predicted."""
        return _quantile(self.cycle_errors, 0.5)

    @property
    def cycle_error_p95(self) -> float:
        """95th percentile of the relative error of the predicted cycle seconds."""
        return _quantile(self.cycle_errors, 0.95)


def calibrate(cycles: Sequence[CycleRecord]) -> Calibration:
    """Compare the predictions of these cycles with what they brought."""
    predicted = [
        (cycle, expected)
        for cycle in cycles
        if (expected := cycle.outcome.selection.prediction) is not None
    ]
    whole = [(cycle, expected) for cycle, expected in predicted if cycle.stop_reason is None]
    actual = np.array([cycle.timings.cycle_s for cycle, _ in predicted])
    expected_s = np.array([expected.cycle_s for _, expected in predicted])
    with np.errstate(divide="ignore"):
        errors = np.abs(expected_s - actual) / actual
    return Calibration(
        predicted_committed=sum(expected.committed for _, expected in whole),
        realised_committed=float(sum(cycle.num_committed for cycle, _ in whole)),
        predicted_misses=sum(expected.misses for _, expected in predicted),
        realised_misses=float(sum(cycle.outcome.num_missing for cycle, _ in predicted)),
        cycle_errors=errors,
    )


def _ratio(numerator: float, denominator: float) -> float:
    return numerator / denominator if denominator else float("nan")


def _quantile(values: NDArray[np.float64], share: float) -> float:
    return float(np.quantile(values, share)) if len(values) else float("nan")
