"""The correction that a running text gives to predicted misses.

Fitted inputs are right on average over texts; one text may jump about more among the experts than
the average. What each cycle shows of the error corrects the next ones.
"""

from __future__ import annotations

from specfit.core.policy import Outcome

PRIOR_MISSES = 40.0
"""Misses that must have been seen before the correction of misses trusts the text half-way."""


class MissCorrection:
    """Follows realised over predicted misses, lately: the `scale` of what is predicted next.

    Parameters
    ----------
    memory : float
        Weight of the past, a cycle; 1 never corrects.
    """

    def __init__(self, memory: float) -> None:
        self.memory = memory
        self.scale = 1.0
        self._predicted = self._realised = PRIOR_MISSES

    def observe(self, outcome: Outcome) -> None:
        """Learn from a cycle whose misses were predicted."""
        prediction = outcome.selection.prediction
        if prediction is None or self.memory == 1.0:
            return
        kept = self.memory
        unscaled = prediction.misses / self.scale
        realised = float(outcome.num_missing)
        self._predicted = kept * self._predicted + (1 - kept) * PRIOR_MISSES + unscaled
        self._realised = kept * self._realised + (1 - kept) * PRIOR_MISSES + realised
        self.scale = self._realised / self._predicted
