"""Is this a tree, is this table a straight line? Private kernels."""

from __future__ import annotations

from typing import Any

from specfit.core._jit import kernel

BAD_ROOT, BAD_PARENT, BAD_PROB, BAD_ORDER = 1, 2, 3, 4

STRAIGHT = 1e-13
"""A table is a line if it keeps this near the one through its ends, as a part of its last value."""


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
def line(tau_s: Any) -> tuple[bool, float, float]:
    """Return whether ``tau_s[1:]`` is a line, its value at 0 nodes and its slope."""
    num_nodes = tau_s.size - 1
    if num_nodes < 2:
        return True, tau_s[1], 0.0
    slope = (tau_s[num_nodes] - tau_s[1]) / (num_nodes - 1)
    start = tau_s[1] - slope
    for n in range(1, num_nodes + 1):
        if abs(start + slope * n - tau_s[n]) > STRAIGHT * tau_s[num_nodes]:
            return False, start, slope
    return True, start, slope


@kernel
def all_probs(values: Any) -> bool:
    """Return whether all of float64[n] are from 0 to 1."""
    for i in range(values.size):
        if not (values[i] >= 0.0 and values[i] <= 1.0):
            return False
    return True
