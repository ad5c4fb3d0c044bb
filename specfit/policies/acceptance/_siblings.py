"""Numba kernel that keeps siblings' probabilities within 1.

Calling convention: flat arrays in, results into an array passed in; no validation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specfit.core._jit import kernel


@kernel
def cap_siblings(
    parents: NDArray[np.int32], probs: NDArray[np.float64], out: NDArray[np.float64]
) -> None:
    """Write into out [N] each node's probability, at most what earlier siblings leave of 1.

    No value depends on a later node; the root's is 1.
    """
    left = np.ones(len(parents))
    out[0] = 1.0
    for node in range(1, len(parents)):
        parent = parents[node]
        out[node] = min(max(probs[node], 0.0), left[parent])
        left[parent] = max(left[parent] - out[node], 0.0)
