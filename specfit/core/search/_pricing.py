"""Path-conditional prices: what each node adds to the expected use of each expert. Private kernels.

Convention. ``first`` is the index of the first new node; rows of earlier nodes are there already.
`probs` holds the new nodes only, flat over layers and experts; `columns` are the flat ids of the
columns that are priced, or empty where all are, in order. `survival[v, c]` is the probability that
no node on the path from the root to v, both included, needs column c.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specfit.core._jit import kernel
from specfit.core.search._rows import LANES, charge, rows_of

LEAST = 1e-6
"""Least part of a demand that is charged: not 0, so that the whole can be told from it."""
ONE = np.float32(1.0)
ZERO = np.float32(0.0)


@kernel
def price_probs(
    probs: Any,  # float32[n, L*E]
    parents: Any,  # int32[>= first+n]
    path_probs: Any,  # float64[>= first+n]
    discount: float,
    first: int,
    columns: Any,  # int64[C] or int64[0]
    factors: Any,  # float32[capacity], out: the part of each node's demand that is charged
    survival: Any,  # float32[capacity, C]
    values: Any,  # float32[capacity, C]
    weight_s: Any,  # float64[C]
    full_s: Any,  # float64[capacity], out: seconds of the row at full weight
    totals: Any,  # float64[C], in and out: sum of all rows
) -> Any:
    """Append one dense row a new node; return the flat index of a value outside [0, 1], or -1."""
    num_columns = weight_s.size
    lanes = np.zeros(LANES)
    counts = np.zeros(LANES, np.int32)
    gathered = np.empty(num_columns, np.float32)
    start = np.ones(num_columns, np.float32)
    rows = rows_of(np.zeros(0, np.int64), np.zeros(0, np.int32), values.reshape(-1), weight_s)
    for i in range(probs.shape[0]):
        node = first + i
        factors[node] = max(1.0 - discount * path_probs[node], LEAST)
        row_probs = probs[i]
        if columns.size:
            for c in range(num_columns):
                gathered[c] = row_probs[columns[c]]
            row_probs = gathered
        if not _all_probs(row_probs, counts):
            for c in range(num_columns):
                if not (row_probs[c] >= ZERO and row_probs[c] <= ONE):
                    _sum_up(values, first, totals)
                    return i * probs.shape[1] + (columns[c] if columns.size else c)
        before = start if node == 0 else survival[parents[node]]
        _condition(row_probs, before, factors[node], survival[node], values[node], totals)
        full_s[node] = charge(rows, node, weight_s, lanes)
    return -1


@kernel
def _sum_up(values: Any, num_nodes: int, totals: Any) -> None:
    """Write the sum of the first rows, which refused ones may have joined, to the totals."""
    totals[:] = 0.0
    for node in range(num_nodes):
        for c in range(totals.size):
            totals[c] += values[node, c]


@kernel
def _all_probs(probs: Any, counts: Any) -> bool:
    """Return whether all of float32[C] are from 0 to 1; `counts` is int32[LANES] scratch."""
    counts[:] = 0
    whole = probs.size // LANES * LANES
    for i in range(0, whole, LANES):
        for j in range(LANES):
            counts[j] += np.int32(probs[i + j] >= ZERO) & np.int32(probs[i + j] <= ONE)
    for i in range(whole, probs.size):
        counts[i - whole] += np.int32(probs[i] >= ZERO) & np.int32(probs[i] <= ONE)
    return bool(counts.sum() == probs.size)


@kernel
def _condition(probs: Any, before: Any, factor: Any, after: Any, row: Any, totals: Any) -> None:
    """Write survival and row of a node, and add the row to the totals, in one pass."""
    for c in range(probs.size):
        left = before[c] * (ONE - probs[c])
        value = (before[c] - left) * factor
        after[c] = left
        row[c] = value
        totals[c] += value
