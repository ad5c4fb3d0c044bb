"""What a running text shows of its misses: how many more there are, and what their copies displace.

Fitted inputs are right on average over texts; one text may jump about more among the experts than
the average. What each cycle shows of the error corrects the next ones.
"""

from __future__ import annotations

from specfit.core.backend import Verification
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


class Displacement:
    """Follows the `share` of copies that displace an expert, lately; 1 before any was seen.

    While a cache fills, a copy takes nothing away, and it stays.

    Parameters
    ----------
    memory : float
        Weight of the past, a pass.
    """

    def __init__(self, memory: float) -> None:
        self.memory = memory
        self.share = 1.0
        self._copies = self._evictions = 0.0

    def observe(self, verification: Verification) -> None:
        """Learn from a pass."""
        self._copies = self.memory * self._copies + float(verification.num_misses.sum())
        self._evictions = self.memory * self._evictions + float(verification.num_evictions.sum())
        if self._copies > 0.0:
            self.share = min(1.0, self._evictions / self._copies)
