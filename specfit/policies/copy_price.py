"""What of a missing expert's copy is charged: not all of its seconds are lost to a selection.

A run pays for the experts of its own text under any selection, in this cycle or the next. And what
is copied for a node that is rejected stays in the cache for a while, where later tokens find it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specfit.core.experts import ModelGeometry, Residency


def room_of(residency: Residency, geometry: ModelGeometry) -> float:
    """Return the part of the resident experts that is there beyond those of one token, 0 to 1."""
    resident = np.count_nonzero(residency.mask) / geometry.num_layers
    return 1.0 - min(1.0, geometry.experts_per_token / max(resident, 1.0))


def share_of(seconds: NDArray[np.float64], chosen: NDArray[np.bool_]) -> float:
    """Return the part of all seconds that the chosen ones are, 0 to 1."""
    total_s = float(seconds.sum())
    return float(seconds[chosen].sum()) / total_s if total_s > 0 else 0.0
