"""What a pass that has run takes by a hardware profile: the simulator's clock.

Cost models predict with the same formula, `specfit.core.copies.pass_seconds`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.copies import pass_seconds
from specfit.core.profile import HardwareProfile

_NONE: NDArray[np.int64] = np.zeros(1, np.int64)


@dataclass(frozen=True)
class CopiesAhead:
    """Copies that were asked for before the pass.

    Parameters
    ----------
    num_copies, num_reads : int
        Experts copied from host to device, and those of them first read from disk.
    lead_s : float
        Seconds from asking to the start of the pass.
    """

    num_copies: int = 0
    num_reads: int = 0
    lead_s: float = 0.0


NOTHING_AHEAD = CopiesAhead()


def pass_time(
    profile: HardwareProfile,
    num_nodes: int,
    num_hits: NDArray[np.int64],
    num_misses: NDArray[np.int64],
    num_reads: NDArray[np.int64] = _NONE,
    ahead: CopiesAhead = NOTHING_AHEAD,
) -> tuple[float, float]:
    """Return stall and compute seconds of a pass over `num_nodes` nodes.

    Parameters
    ----------
    num_hits, num_misses : int64[L]
        Activated experts that were resident when their layer began, and that were not.
    num_reads : int64[L] or int64[1]
        Misses that were first read from disk.
    """
    tau_s = profile.tau_s(num_nodes)
    ahead_s = ahead.num_copies * profile.copy_s + ahead.num_reads * profile.ssd_s
    if profile.overlap == "none":  # then sums over the layers will do
        misses = int(num_misses.sum())
        compute_s = tau_s + profile.resident_expert_s * (int(num_hits.sum()) + misses)
        reads_s = int(num_reads.sum()) * profile.ssd_s if profile.ssd_s else 0.0
        return misses * profile.copy_s + reads_s + ahead_s, compute_s
    expert_s = (num_hits + num_misses).astype(np.float64) * profile.resident_expert_s
    copy_s: NDArray[np.float64] = num_misses * profile.copy_s + num_reads * profile.ssd_s
    compute_s = tau_s + float(expert_s.sum())
    total_s = pass_seconds(
        profile.overlap, tau_s, expert_s, copy_s, ahead_s=ahead_s, lead_s=ahead.lead_s
    )
    return max(0.0, total_s - compute_s), compute_s
