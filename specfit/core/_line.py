"""Is a table of seconds a straight line? Private kernel."""

from __future__ import annotations

from typing import Any

from specfit.core._jit import kernel

STRAIGHT = 1e-13
"""A table is a line if each value is this near the line through its ends, as a part of itself."""


@kernel
def line(tau_s: Any) -> tuple[bool, float, float]:
    """Return whether ``tau_s[1:]`` is a line, its value at 0 nodes and its slope."""
    num_nodes = tau_s.size - 1
    if num_nodes < 2:
        return True, tau_s[1], 0.0
    slope = (tau_s[num_nodes] - tau_s[1]) / (num_nodes - 1)
    start = tau_s[1] - slope
    for n in range(1, num_nodes + 1):
        if abs(start + slope * n - tau_s[n]) > STRAIGHT * tau_s[n]:
            return False, start, slope
    return True, start, slope
