"""What of a missing expert's copy is charged: not all of its seconds are lost to a selection.

A run pays for the experts of its own text under any selection, in this cycle or the next. And what
is copied for a node that is rejected stays in the cache for a while, where later tokens find it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core._jit import kernel
from specfit.core.experts import ModelGeometry, Residency


def room_of(residency: Residency, geometry: ModelGeometry) -> float:
    """Return the part of the resident experts that is there beyond those of one token, 0 to 1."""
    resident = np.count_nonzero(residency.mask) / geometry.num_layers
    return 1.0 - min(1.0, geometry.experts_per_token / max(resident, 1.0))


def charged_weights(
    weight_s: NDArray[np.float64],
    residency: Residency,
    scale: float,
    layers: NDArray[np.bool_],
    stands_for: float,
) -> tuple[NDArray[np.float64], float]:
    """Return the seconds that experts are charged, and the share that missing ones have in full.

    Parameters
    ----------
    weight_s : float64[L, E]
        Full seconds of each expert.
    residency : Residency
        Says which experts are missing.
    scale : float
        Part of a missing expert's seconds that is charged; above 1 where more misses are expected
        than predicted.
    layers : bool[L]
        Layers that are looked at; the others' experts are charged nothing.
    stands_for : float
        Layers that each of them stands for, itself among them: L over their number.

    Returns
    -------
    float64[L, E], float
        Charged seconds; of the full seconds of the layers that are looked at, the part that is
        missing experts', 0 to 1.
    """
    charged_s = np.zeros(weight_s.shape)
    missing_s, total_s = _charge(weight_s, residency.mask, layers, stands_for, scale, charged_s)
    return charged_s, missing_s / total_s if total_s > 0 else 0.0


@kernel
def _charge(
    weight_s: Any, is_resident: Any, layers: Any, stands_for: float, scale: float, out: Any
) -> tuple[float, float]:
    """Fill `out`, float64[L, E]; return the seconds of missing experts, and of all, as they are."""
    missing_s, total_s = 0.0, 0.0
    for layer in range(weight_s.shape[0]):
        if not layers[layer]:
            continue
        for expert in range(weight_s.shape[1]):
            seconds = weight_s[layer, expert]
            total_s += seconds
            if is_resident[layer, expert]:
                out[layer, expert] = stands_for * seconds
            else:
                missing_s += seconds
                out[layer, expert] = stands_for * scale * seconds
    return missing_s, total_s
