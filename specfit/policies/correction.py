"""What a running text shows of its misses: how many more there are, and what their copies displace.

Fitted inputs are right on average over texts; one text may jump about more among the experts than
the average. What each cycle shows of the error corrects the next ones.
"""

from __future__ import annotations

import numpy as np

from specfit.core.backend import Verification
from specfit.core.experts import Residency
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
    """Follows the `share` of copies that did not add to what is resident; 1 before any was seen.

    While a cache fills, a copy takes nothing away, and it stays. In a full one it displaces another
    expert, and in one that keeps nothing it is lost.

    Parameters
    ----------
    memory : float
        Weight of the past, from one look at what is resident to the next.
    """

    def __init__(self, memory: float) -> None:
        self.memory = memory
        self.share = 1.0
        self._copies = self._added = 0.0
        self._copies_since_look = 0
        self._num_resident: int | None = None

    def observe(self, verification: Verification) -> None:
        """Take in the copies of a pass."""
        self._copies_since_look += int(verification.num_misses.sum())

    def look(self, residency: Residency) -> None:
        """See what is resident now, and learn how much of the copies since the last look it is."""
        before, self._num_resident = self._num_resident, int(np.count_nonzero(residency.mask))
        copies, self._copies_since_look = self._copies_since_look, 0
        if before is None or copies == 0:
            return
        added = min(max(self._num_resident - before, 0), copies)
        self._copies = self.memory * self._copies + copies
        self._added = self.memory * self._added + added
        self.share = 1.0 - self._added / self._copies
