"""How fast plain decoding of the same text would be: counted along a run, without running it.

A cache of its own takes the passes that plain decoding would make, one token each, with the routing
that the run observed. Misses are exact, as far as routing does not depend on batch width; seconds
are estimated from a hardware profile.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specfit.core.backend import Prefill, Request
from specfit.core.cache import ExpertCache
from specfit.core.decode import CycleRecord, Observer
from specfit.core.pass_time import NOTHING_AHEAD, CopiesAhead, pass_time
from specfit.core.profile import HardwareProfile
from specfit.sim.expert_pass import run_pass, run_prefill


class PlainEstimate(Observer):
    """Counts what plain decoding would copy for the committed tokens, and estimates its seconds.

    Parameters
    ----------
    cache : ExpertCache
        Allocated like the run's; its contents change.
    profile : HardwareProfile
        Where the seconds come from.

    Attributes
    ----------
    num_tokens, num_misses : int
        Committed tokens, and experts that plain decoding would have copied for them.
    seconds : float
        Seconds of plain decoding by the profile.
    """

    def __init__(self, cache: ExpertCache, profile: HardwareProfile) -> None:
        self._cache = cache
        self._profile = profile
        self.num_tokens = self.num_misses = 0
        self.seconds = self._predicted_s = self._measured_s = 0.0

    @property
    def tokens_per_s(self) -> float:
        """Throughput of plain decoding by the profile; NaN before the first cycle."""
        return self.num_tokens / self.seconds if self.seconds else float("nan")

    @property
    def paced_tokens_per_s(self) -> float:
        """The same at the pace that the machine keeps: its passes against the profile's.

        A busy machine, or an old profile, slows down both; then only this compares like with like.
        Copies ahead are predicted without a head start, which can only favour plain decoding.
        """
        return self.tokens_per_s * self._predicted_s / (self._measured_s or self._predicted_s or 1)

    def on_start(self, request: Request, prefill: Prefill) -> None:
        """Fill the cache as the prompt does."""
        run_prefill(self._cache, prefill.routing, prefill.chunks)

    def on_cycle(self, record: CycleRecord) -> None:
        """Make a pass for each committed token."""
        outcome, verification = record.outcome, record.outcome.verification
        self._measured_s += record.timings.stall_s + record.timings.compute_s
        self._predicted_s += self._pass_s(
            record.num_verified,
            verification.num_hits,
            verification.num_misses,
            CopiesAhead(verification.num_prefetched),
        )
        rows = {int(node): row for row, node in enumerate(verification.nodes)}
        for node in (0, *outcome.accepted):
            row = rows[node]
            counts = run_pass(self._cache, verification.routing[row : row + 1])
            self.num_misses += int(counts.num_misses.sum())
            self.seconds += self._pass_s(1, counts.num_hits, counts.num_misses)
        self.num_tokens += len(outcome.committed)

    def _pass_s(
        self,
        num_nodes: int,
        num_hits: NDArray[np.int64],
        num_misses: NDArray[np.int64],
        ahead: CopiesAhead = NOTHING_AHEAD,
    ) -> float:
        return sum(pass_time(self._profile, num_nodes, num_hits, num_misses, ahead=ahead))
