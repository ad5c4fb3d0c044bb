"""One more level, answered in one call: price its nodes, search, look ahead. Private kernel.

Between two passes of a model every separate call finds cold caches and costs several times what its
arithmetic does; so the three steps of a level under affine costs are one call.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specfit.core._jit import kernel
from specfit.core.search import _affine, _checks
from specfit.core.search._pricing import price_probs
from specfit.core.search._stop import look_ahead

BAD_TREE, BAD_GROWTH, BAD_PROBS = -1, -2, -3


@kernel
def advance(
    parents: Any,  # int32[N]
    path_probs: Any,  # float64[N]
    probs: Any,  # float32[n, L*E], the new nodes'
    discount: float,
    first: int,  # number of nodes that are priced already
    columns: Any,  # int64[C] or int64[0]; this and the next six: see `price_probs`
    factors: Any,
    survival: Any,
    values: Any,
    weight_s: Any,
    full_s: Any,
    totals: Any,
    fixed_s: Any,  # float64[J+1], seconds without nodes and experts after 0 to J more levels
    node_s: float,
    mode: int,  # RATIO or PRICE, with the price
    price: float,
    growth: Any,  # float64[J]
    expandable: Any,  # bool[N]
    start: Any,  # bool[<= N], the selection of the level before
    mask: Any,  # bool[N], out; this and the next two: see `search_affine`
    numbers: Any,  # float64[4], out
    counts: Any,  # int64[2], out
) -> int:
    """Return how many further levels win, 0 if none does, or what is wrong with the input."""
    num_nodes, ahead = parents.size, growth.size
    fault, _ = _checks.check_tree(parents, path_probs)
    if fault:
        return BAD_TREE
    if not _checks.all_probs(growth):
        return BAD_GROWTH
    bad = price_probs(
        probs, parents, path_probs, discount, first, columns, factors, survival, values, weight_s,
        full_s, totals,
    )  # fmt: skip
    if bad >= 0:
        return BAD_PROBS - int(bad)
    indptr, cols = np.zeros(0, np.int64), np.zeros(0, np.int32)
    vals, full = values.reshape(-1), full_s[:num_nodes]
    hint = np.zeros(num_nodes, np.bool_)
    hint[: start.size] = start
    _affine.search_affine(
        parents, path_probs, fixed_s[0], node_s, mode, price, indptr, cols, vals, weight_s, full,
        totals, hint, mask, numbers, counts,
    )  # fmt: skip
    if ahead == 0:
        return 0
    by_node = np.empty((num_nodes, ahead))
    by_node[:] = growth
    bar = 0.0 if mode == _affine.RATIO else numbers[_affine.BAR]
    return int(
        look_ahead(
            parents, path_probs, expandable, by_node, fixed_s[1:], node_s,
            numbers[_affine.LAMBDA], bar, indptr, cols, vals, weight_s, full, totals,
            np.empty(ahead),
        )
    )  # fmt: skip
