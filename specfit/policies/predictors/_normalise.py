"""Numba kernels of predictors that score experts by the history.

Calling convention: flat arrays in, results into arrays passed in; no validation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specfit.core._jit import kernel
from specfit.policies.predictors._kernels import scale_to_total

_MOST = 30.0


@kernel
def normalise(logits: NDArray[np.float64], total: float, out: NDArray[np.float32]) -> None:
    """Write into out [n, l, E] the probabilities of log odds, scaled to sum to total a layer."""
    odds = np.empty(logits.shape[2], np.float32)
    for i in range(logits.shape[0]):
        for layer in range(logits.shape[1]):
            for e in range(len(odds)):
                odds[e] = np.exp(min(max(logits[i, layer, e], -_MOST), _MOST))
            scale_to_total(odds, np.float32(total), out[i, layer])


@kernel
def decayed_counts(rows: NDArray[np.int16], decay: float, out: NDArray[np.float64]) -> None:
    """Add to out [L, E] what each token of rows [T, L, K] needed, times decay to its age."""
    weight = 1.0
    for t in range(len(rows) - 1, -1, -1):
        for layer in range(rows.shape[1]):
            for k in range(rows.shape[2]):
                out[layer, rows[t, layer, k]] += weight
        weight *= decay
