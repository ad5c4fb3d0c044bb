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
from specfit.core.search._rows import LANES, Rows, charge

ONE = np.float32(1.0)
ZERO = np.float32(0.0)


@kernel
def price_probs(
    probs: Any,  # float32[n, L*E]
    parents: Any,  # int32[>= first+n]
    factors: Any,  # float32[>= first+n], 1 - discount * path probability
    first: int,
    columns: Any,  # int64[C] or int64[0]
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
    rows = Rows(np.zeros(0, np.int64), np.zeros(0, np.int32), values.reshape(-1), weight_s)
    for i in range(probs.shape[0]):
        node = first + i
        row_probs = probs[i]
        if columns.size:
            for c in range(num_columns):
                gathered[c] = row_probs[columns[c]]
            row_probs = gathered
        if not _all_probs(row_probs, counts):
            for c in range(num_columns):
                if not (row_probs[c] >= ZERO and row_probs[c] <= ONE):
                    return i * probs.shape[1] + (columns[c] if columns.size else c)
        before = start if node == 0 else survival[parents[node]]
        _condition(row_probs, before, factors[node], survival[node], values[node], totals)
        full_s[node] = charge(rows, node, weight_s, lanes)
    return -1


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


@kernel
def price_routing(
    routing: Any,  # int16[n, L, K]
    parents: Any,  # int32[>= first+n]
    first: int,
    expert_s: Any,  # float64[L*E], weight by flat id
    num_experts: int,
    is_free: Any,  # uint8[L*E], 1 where an expert is not priced
    column_of: Any,  # int32[L*E], -1 where no node needed it yet
    expert_of: Any,  # int64[L*E], the inverse, filled up to num_columns
    column_s: Any,  # float64[L*E], weight by column, likewise
    num_columns: int,
    covered: Any,  # uint8[capacity, L*E], 1 where an expert is free or the path to a node needs it
    indptr: Any,  # int64[capacity+1]
    cols: Any,  # int32[enough]
    full_s: Any,  # float64[capacity]
    totals: Any,  # float64[L*E]
) -> Any:
    """Append one sparse row a new node: the experts that no node on its path needs already.

    Returns the number of columns so far, or ``-1 - i`` when flat entry i is no expert id.
    """
    per_node = routing.shape[1] * routing.shape[2]
    ids = routing.reshape(-1)
    fresh = np.empty(per_node + 1, np.uint64)
    for i in range(routing.shape[0]):
        node = first + i
        before = is_free if node == 0 else covered[parents[node]]
        entries = ids[i * per_node : (i + 1) * per_node]
        count = _cover(entries, routing.shape[2], num_experts, before, covered[node], fresh)
        if count < 0:
            return count - i * per_node
        end = indptr[node]
        seconds = 0.0
        for j in range(count):
            expert = fresh[j]
            column = column_of[expert]
            if column < 0:
                column = num_columns
                column_of[expert] = column
                expert_of[column] = expert
                column_s[column] = expert_s[expert]
                num_columns += 1
            cols[end + j] = column
            totals[column] += 1.0
            seconds += expert_s[expert]
        indptr[node + 1] = end + count
        full_s[node] = seconds
    return num_columns


@kernel
def _cover(ids: Any, per_token: int, num_experts: int, before: Any, after: Any, fresh: Any) -> Any:
    """List in `fresh` the flat ids of one node's experts that are not covered before it.

    No branch depends on what is covered: that is a coin toss, which a processor guesses badly.
    Returns how many, or ``-1 - i`` when entry i is no expert id.
    """
    for c in range(before.size):
        after[c] = before[c]
    count = np.uint64(0)
    entry = 0
    for layer in range(ids.size // per_token):
        offset = np.uint64(layer * num_experts)
        for _ in range(per_token):
            if ids[entry] < 0 or ids[entry] >= num_experts:
                return -1 - entry
            expert = offset + np.uint64(ids[entry])
            fresh[count] = expert
            count += np.uint64(np.uint8(1) - after[expert])
            after[expert] = np.uint8(1)
            entry += 1
    return np.int64(count)
