"""Would more levels pay? The selection search over a tree with phantom chains. Private kernels.

A chain of j phantoms hangs under every node that may still be expanded. A phantom needs no expert,
so a chain is no set of nodes but a bonus for its parent v: the sum over its steps i of ``max(0,
path_probs[v] * growth[1] * ... * growth[i] - price * node_s)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specfit.core._jit import kernel
from specfit.core.search import _affine, _sharing
from specfit.core.search._rows import Rows, rows_of, shared_seconds
from specfit.core.search._tree import best_subtree


@kernel
def look_ahead(
    parents: Any,  # int32[N]
    path_probs: Any,  # float64[N]
    expandable: Any,  # bool[N]
    growth: Any,  # float64[N, J]
    fixed_s: Any,  # float64[J], seconds without nodes and experts after 1 to J more levels
    node_s: float,
    price: float,
    bar: float,  # the gain A - price * T of stopping here
    indptr: Any,
    cols: Any,
    vals: Any,
    weight_s: Any,
    full_s: Any,
    totals: Any,
    surplus: Any,  # float64[J], out: see `StopDecision`
) -> int:
    """See `look_ahead_rows`; takes the demand matrix as separate arrays."""
    return look_ahead_rows(
        parents, path_probs, expandable, growth, fixed_s, node_s, price, bar,
        rows_of(indptr, cols, vals, weight_s), full_s, totals, surplus,
    )  # fmt: skip


@kernel
def look_ahead_rows(
    parents: Any,  # this and the rest: see `look_ahead`
    path_probs: Any,
    expandable: Any,
    growth: Any,
    fixed_s: Any,
    node_s: float,
    price: float,
    bar: float,
    rows: Rows,
    full_s: Any,
    totals: Any,
    surplus: Any,
) -> int:
    """Return a number of further levels found to beat the bar, or 0 if none does.

    Most answers need only the bounds, and are the number that wins by most as far as these tell;
    the rest are searches for a selection beyond the bar, and are the first that finds one.
    """
    num_nodes, ahead = growth.shape
    bonus, lower, upper = np.empty((ahead, num_nodes)), np.empty(ahead), np.empty(ahead)
    shared_s = np.empty(num_nodes)
    shared_seconds(rows, full_s, totals, shared_s)
    bound_ahead(
        parents, path_probs, expandable, growth, fixed_s, node_s, price, full_s, shared_s,
        bonus, lower, upper,
    )  # fmt: skip
    slack = _affine.SLACK * path_probs.sum()
    surplus[:] = np.nan
    most = int(np.argmax(lower)) if ahead else 0
    if ahead and lower[most] > bar + slack:
        surplus[most] = lower[most] - bar
        return most + 1
    nothing, mask = np.zeros(0, np.bool_), np.empty(num_nodes, np.bool_)
    values, counts = np.zeros(4), np.zeros(2, np.int64)
    for j in range(ahead):
        surplus[j] = upper[j] - bar
        if surplus[j] > slack:
            values[_sharing.BAR] = bar
            _affine.search_rows(
                parents, path_probs + bonus[j], fixed_s[j], node_s, _affine.SIGN, price,
                rows, full_s, totals, nothing, nothing, np.zeros(0), mask, values, counts,
            )  # fmt: skip
            surplus[j] = values[_sharing.BAR] - bar
        if surplus[j] > slack:
            return j + 1
    return 0


@kernel
def bound_ahead(
    parents: Any,  # int32[N]
    path_probs: Any,  # float64[N]
    expandable: Any,  # bool[N]
    growth: Any,  # float64[N, J]
    fixed_s: Any,  # float64[J], seconds without nodes and experts after 1 to J more levels
    node_s: float,
    price: float,
    full_s: Any,  # float64[N], seconds of each row if nobody shares
    shared_s: Any,  # float64[N], seconds of each row if all nodes share
    bonus: Any,  # float64[J, N], out: what a chain of 1 to J phantoms under each node gains
    lower: Any,  # float64[J], out: a gain A - price * T that 1 to J more levels attain
    upper: Any,  # float64[J], out: one that they cannot exceed
) -> None:
    """Bound the best gain 1 to J levels ahead, by two passes over the tree each."""
    num_nodes = parents.size
    _bonuses(path_probs, expandable, growth, price * node_s, bonus)
    live = np.ones(num_nodes, np.bool_)
    gains = np.empty(num_nodes)
    taken = np.empty(num_nodes, np.bool_)
    profits = np.empty(num_nodes)
    full, shared = full_s + node_s, shared_s + node_s
    for ahead in range(lower.size):
        for v in range(num_nodes):
            profits[v] = path_probs[v] + bonus[ahead, v]
        spent = price * fixed_s[ahead]
        lower[ahead] = best_subtree(parents, profits, full, live, price, 0.0, gains, taken) - spent
        upper[ahead] = (
            best_subtree(parents, profits, shared, live, price, 0.0, gains, taken) - spent
        )


@kernel
def _bonuses(path_probs: Any, expandable: Any, growth: Any, node_price: float, bonus: Any) -> None:
    """Write what a chain of 1 to J phantoms under each node gains at best, float64[J, N]."""
    bonus[:] = 0.0
    for v in range(path_probs.size):
        if not expandable[v]:
            continue
        prob = path_probs[v]
        total = 0.0
        for ahead in range(growth.shape[1]):
            prob *= growth[v, ahead]
            total += max(0.0, prob - node_price)
            bonus[ahead, v] = total
