"""Is this a tree, are these probabilities? Private kernels."""

from __future__ import annotations

from typing import Any

from specfit.core._jit import kernel

BAD_ROOT, BAD_PARENT, BAD_PROB, BAD_ORDER = 1, 2, 3, 4


@kernel
def check_tree(parents: Any, path_probs: Any) -> tuple[int, int]:
    """Return the first fault of a tree, int32[N] and float64[N], and its node; 0, 0 if none."""
    if parents.size == 0 or parents[0] != -1:
        return BAD_ROOT, 0
    for v in range(parents.size):
        if not (path_probs[v] >= 0.0 and path_probs[v] <= 1.0):
            return BAD_PROB, v
        if v > 0:
            if parents[v] < 0 or parents[v] >= v:
                return BAD_PARENT, v
            if path_probs[v] > path_probs[parents[v]]:
                return BAD_ORDER, v
    return 0, 0


@kernel
def all_probs(values: Any) -> bool:
    """Return whether all of float64[n] are from 0 to 1."""
    for i in range(values.size):
        if not (values[i] >= 0.0 and values[i] <= 1.0):
            return False
    return True
