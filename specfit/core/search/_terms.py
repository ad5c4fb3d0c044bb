"""General monotone costs, and affine functions that are nowhere above them. Private kernels.

Convention. With the activation ``a(c) = min(1, load[c])`` of a selection of n nodes, layer l
computes

    compute[l] = tau_s[n] / L + sum of weight_s[c] * a(c) over its columns

and copies ``copies[l]``, the sum of ``units[c] * a(c)``, in ``h_l(copies[l])`` seconds: row l of
`layer_s`, straight lines between whole numbers. `overlap` says how the two combine.

A `Minorant` holds, for each layer, ``compute_part * compute[l] + start + slope * copies[l]``, which
is nowhere above the layer's seconds as long as ``copies[l]`` keeps to its range. For overlap PASS
the layers' sum is what is bounded, and one `compute_part` serves all. For RESIDENT `tau_s` is no
part of what is bounded.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from specfit.core._jit import kernel
from specfit.core.search._rows import Rows, load_of

NONE, LAYER, PASS, RESIDENT = 0, 1, 2, 3


class Terms(NamedTuple):
    """Costs of a cycle; see the module's convention."""

    draft_s: float
    tau_s: Any  # float64[M+1]
    rows: Rows
    units: Any  # float64[C]
    layer_of: Any  # int32[C]
    layer_s: Any  # float64[L, H+1]
    overlap: int


class Minorant(NamedTuple):
    """One affine function a layer; see the module's convention."""

    compute_part: Any  # float64[L]
    start: Any  # float64[L]
    slope: Any  # float64[L]


@kernel
def table_at(table: Any, x: float) -> float:
    """Return the value of float64[H+1] at x >= 0: straight lines, the last one goes on."""
    low = min(int(x), table.size - 2)
    return float(table[low] + (x - low) * (table[low + 1] - table[low]))


@kernel
def layer_loads(terms: Terms, load: Any, compute: Any, copies: Any) -> None:
    """Write compute (without tau) and copies of each layer, float64[L], for a load, float64[C]."""
    compute[:] = 0.0
    copies[:] = 0.0
    for c in range(load.size):
        if load[c] > 0.0:
            used = min(1.0, load[c])
            compute[terms.layer_of[c]] += terms.rows.weight_s[c] * used
            copies[terms.layer_of[c]] += terms.units[c] * used


@kernel
def total_seconds(terms: Terms, num_nodes: int, compute: Any, copies: Any) -> float:
    """Return T for given layer loads and number of nodes."""
    tau_s = terms.tau_s[num_nodes]
    num_layers = compute.size
    sequential, longer, beside, compute_sum, copy_sum = 0.0, 0.0, 0.0, 0.0, 0.0
    for layer in range(num_layers):
        copy_s = table_at(terms.layer_s[layer], copies[layer])
        compute_s = tau_s / num_layers + compute[layer]
        sequential += compute[layer] + copy_s
        longer += max(compute_s, copy_s)
        beside += max(compute[layer], copy_s)
        compute_sum += compute[layer]
        copy_sum += copy_s
    if terms.overlap == LAYER:
        return float(terms.draft_s + longer)
    if terms.overlap == RESIDENT:
        return float(terms.draft_s + (tau_s + beside))
    if terms.overlap == PASS:
        return float(terms.draft_s + max(tau_s + compute_sum, copy_sum))
    return float(terms.draft_s + (tau_s + sequential))


@kernel
def measure(
    terms: Terms, profits: Any, chosen: Any, load: Any, compute: Any, copies: Any
) -> tuple[float, float]:
    """Return A and T of a selection, bool[N]; the other arguments are scratch."""
    tokens = 0.0
    num_nodes = 0
    for v in range(chosen.size):
        if chosen[v]:
            tokens += profits[v]
            num_nodes += 1
    load_of(terms.rows, chosen, load)
    layer_loads(terms, load, compute, copies)
    return tokens, total_seconds(terms, num_nodes, compute, copies)


@kernel
def new_minorant(num_layers: int) -> Minorant:
    """Return a minorant to be filled."""
    return Minorant(np.zeros(num_layers), np.zeros(num_layers), np.zeros(num_layers))


@kernel
def move_minorant(
    terms: Terms,
    minorant: Minorant,
    part: float,  # 1 replaces the minorant, less mixes the new one in
    num_nodes: int,
    compute: Any,  # float64[L], at the point to touch
    copies: Any,  # float64[L], at the point to touch
    fewest: Any,  # float64[L], copies of the smallest selection in range
    most: Any,  # float64[L], copies of the largest
) -> None:
    """Mix in the affine functions that touch the costs at a point, or come nearest below."""
    num_layers = compute.size
    tau_part = terms.tau_s[num_nodes] / num_layers
    compute_sum, copy_sum = terms.tau_s[num_nodes], 0.0
    for layer in range(num_layers):
        compute_sum += compute[layer]
        copy_sum += table_at(terms.layer_s[layer], copies[layer])
    for layer in range(num_layers):
        start, slope = support_below(
            terms.layer_s[layer], fewest[layer], most[layer], copies[layer]
        )
        compute_part, copy_part = 1.0, 1.0
        if terms.overlap == LAYER or terms.overlap == RESIDENT:
            beside = compute[layer] + (tau_part if terms.overlap == LAYER else 0.0)
            compute_part = 1.0 * (beside >= start + slope * copies[layer])
            copy_part = 1.0 - compute_part
        elif terms.overlap == PASS:
            compute_part = 1.0 * (compute_sum >= copy_sum)
            copy_part = 1.0 - compute_part
        minorant.compute_part[layer] += part * (compute_part - minorant.compute_part[layer])
        minorant.start[layer] += part * (copy_part * start - minorant.start[layer])
        minorant.slope[layer] += part * (copy_part * slope - minorant.slope[layer])


@kernel
def support_below(table: Any, low: float, high: float, x: float) -> tuple[float, float]:
    """Return start and slope of the line that is below a table on [low, high] and highest at x.

    The line carries the segment at x of the lower convex envelope of the points at low, at each
    whole number between, and at high.
    """
    if not high > low:
        return table_at(table, low), 0.0
    x = min(max(x, low), high)
    left_x, left_y = low, table_at(table, low)
    while True:
        # The envelope leaves `left` along the least slope to any point on its right.
        right_x, right_y = high, table_at(table, high)
        slope = (right_y - left_y) / (right_x - left_x)
        point = int(left_x) + 1
        while point < high:
            steepness = (table_at(table, float(point)) - left_y) / (point - left_x)
            if steepness <= slope:
                slope = steepness
                right_x, right_y = float(point), table_at(table, float(point))
            point += 1
        if x <= right_x:
            return left_y - slope * left_x, slope
        left_x, left_y = right_x, right_y
