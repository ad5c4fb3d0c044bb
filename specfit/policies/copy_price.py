"""What a missing expert's copy is charged: not all of its seconds are lost to a selection.

A run pays for the experts of its own text under any selection, in this cycle or the next. And what
is copied for a node that is rejected stays in the cache for a while, where later tokens find it.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from specfit.core.copies import CopyTerms
from specfit.core.cost import CostTerms
from specfit.core.experts import ModelGeometry, Residency


def room_of(residency: Residency, geometry: ModelGeometry) -> float:
    """Return the part of the resident experts that is there beyond those of one token, 0 to 1."""
    resident = np.count_nonzero(residency.mask) / geometry.num_layers
    return 1.0 - min(1.0, geometry.experts_per_token / max(resident, 1.0))


def copied_share(terms: CostTerms, residency: Residency) -> float:
    """Return the part of all experts' seconds that copies take, 0 to 1.

    1 where copies are apart, and have all the seconds that a discount could be about.
    """
    if terms.copies is not None:
        return 1.0
    total_s = float(terms.weight_s.sum())
    return float(terms.weight_s[~residency.mask].sum()) / total_s if total_s > 0 else 0.0


def scale_misses(
    terms: CostTerms, residency: Residency, scale: float
) -> tuple[NDArray[np.float64], CopyTerms | None]:
    """Return the experts' seconds, float64[L, E], and the copies, missing ones' cost scaled.

    Where copies are apart, the experts' seconds are compute, which no miss adds to.
    """
    if scale == 1.0 or residency.mask.all():
        return terms.weight_s, terms.copies
    scales = np.where(residency.mask, 1.0, scale)
    if terms.copies is None:
        return terms.weight_s * scales, None
    return terms.weight_s, replace(terms.copies, units=terms.copies.units * scales)
