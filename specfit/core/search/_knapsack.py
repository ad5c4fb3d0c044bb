"""The best closed subtree of every size, when every node has its own price. Private kernels.

A node that is left out takes its branch with it, so in depth-first order the best gain from
position i on with n nodes is that of taking i (and going on at i + 1) or of skipping its branch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specfit.core._jit import kernel


@kernel
def depth_first(parents: Any) -> tuple[Any, Any]:
    """Return the nodes depth first, children by ascending index, and the size of each branch."""
    n = parents.size
    sizes = np.ones(n, np.int64)
    for v in range(n - 1, 0, -1):
        sizes[parents[v]] += sizes[v]
    position = np.zeros(n, np.int64)
    free = np.ones(n, np.int64)
    order = np.empty(n, np.int64)
    order[0] = 0
    for v in range(1, n):
        u = parents[v]
        position[v] = position[u] + free[u]
        free[u] += sizes[v]
        order[position[v]] = v
    return order, sizes


@kernel
def best_of_each_size(
    order: Any,  # int64[N]
    sizes: Any,  # int64[N], by node
    gains: Any,  # float64[N], by node
    limit: int,
    table: Any,  # float64[N+1, limit+1], out
) -> None:
    """Fill ``table[i, n]``: the best gain of n nodes from position i on; -inf where impossible."""
    n = order.size
    table[n, :] = -np.inf
    table[n, 0] = 0.0
    for i in range(n - 1, -1, -1):
        v = order[i]
        skip = i + sizes[v]
        table[i, 0] = 0.0
        for k in range(1, limit + 1):
            table[i, k] = max(table[i + 1, k - 1] + gains[v], table[skip, k])


@kernel
def trace(order: Any, sizes: Any, gains: Any, table: Any, count: int, chosen: Any) -> None:
    """Mark in bool[N] `chosen` the nodes that attain ``table[0, count]``."""
    chosen[:] = False
    i = 0
    while count > 0:
        v = order[i]
        if table[i + 1, count - 1] + gains[v] >= table[i + sizes[v], count]:
            chosen[v] = True
            count -= 1
            i += 1
        else:
            i += sizes[v]


@kernel
def search_sizes(
    parents: Any,  # int32[N]
    profits: Any,  # float64[N]
    seconds: Any,  # float64[N], each node's own seconds without tau
    draft_s: float,
    tau_s: Any,  # float64[>= limit+1]
    limit: int,
    is_ratio: bool,
    price: float,
    slack: float,  # a larger selection must gain this much more, relative
    mask: Any,  # bool[N], out
    values: Any,  # float64[3], out: A, T and the price
) -> int:
    """Find the best selection for any table of seconds by nodes; return the number of passes."""
    order, sizes = depth_first(parents)
    table = np.empty((parents.size + 1, limit + 1))
    mask[:] = False
    mask[0] = True
    values[0] = profits[0]
    values[1] = draft_s + tau_s[1] + seconds[0]
    values[2] = values[0] / values[1] if is_ratio else price
    gains = np.empty(parents.size)
    chosen = np.empty(parents.size, np.bool_)
    passes = 0
    while True:
        passes += 1
        for v in range(parents.size):
            gains[v] = profits[v] - values[2] * seconds[v]
        best_of_each_size(order, sizes, gains, limit, table)
        count = _best_count(table[0], profits[0], tau_s, limit, values[2], slack)
        trace(order, sizes, gains, table, count, chosen)
        tokens, total_s = 0.0, draft_s + tau_s[count]
        for v in range(parents.size):
            if chosen[v]:
                tokens += profits[v]
                total_s += seconds[v]
        rate = tokens / total_s if is_ratio else 0.0
        is_last = not (is_ratio and rate > values[2])
        if not is_last or not is_ratio or rate >= values[2] * (1.0 - slack):
            mask[:] = chosen
            values[0], values[1] = tokens, total_s
        if is_last:
            return passes
        values[2] = rate


@kernel
def _best_count(
    best: Any, root_tokens: float, tau_s: Any, limit: int, price: float, slack: float
) -> int:
    """Return the smallest size whose gain, `tau_s` paid, is best up to rounding."""
    top = -np.inf
    for n in range(1, limit + 1):
        top = max(top, best[n] - price * tau_s[n])
    for n in range(1, limit + 1):
        if best[n] - price * tau_s[n] >= top - slack * (root_tokens + best[n] - best[1]):
            return n
    return 1
