"""Would more levels pay? The selection search over a tree with phantom chains. Private kernels.

A chain of j phantoms hangs under every node that may still be expanded. A phantom needs no expert,
so a chain is no set of nodes but a bonus for its parent v: the sum over its steps i of ``max(0,
path_probs[v] * growth[1] * ... * growth[i] - price * node_s)``.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specfit.core._jit import kernel
from specfit.core.search._affine import BAR, SIGN, SLACK, search_affine
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
    bar: float,  # the gain A - price * T to beat
    indptr: Any,
    cols: Any,
    vals: Any,
    weight_s: Any,
    full_s: Any,
    shared_s: Any,
    totals: Any,
    surplus: Any,  # float64[J], out, tokens above the bar; NaN where not needed
) -> int:
    """Return the first number of levels that beats the bar, or 0 when none does."""
    surplus[:] = np.nan
    bonus = np.zeros(growth.shape)
    _bonuses(path_probs, expandable, growth, price * node_s, bonus)
    num_nodes = parents.size
    live = np.ones(num_nodes, np.bool_)
    gains = np.empty(num_nodes)
    taken = np.empty(num_nodes, np.bool_)
    full = full_s + node_s
    shared = shared_s + node_s
    slack = SLACK * max(1.0, path_probs.sum())
    for ahead in range(surplus.size):
        profits = path_probs + bonus[:, ahead]
        gain = best_subtree(parents, profits, full, live, price, 0.0, gains, taken)
        gain -= price * fixed_s[ahead] + bar
        if gain > slack:
            surplus[ahead] = gain
            return ahead + 1
    hint = np.zeros(num_nodes, np.bool_)
    values = np.zeros(4)
    counts = np.zeros(2, np.int64)
    for ahead in range(surplus.size):
        profits = path_probs + bonus[:, ahead]
        gain = best_subtree(parents, profits, shared, live, price, 0.0, gains, taken)
        surplus[ahead] = gain - price * fixed_s[ahead] - bar
        if surplus[ahead] <= slack:
            continue
        values[BAR] = bar
        search_affine(
            parents, profits, fixed_s[ahead], node_s, SIGN, price, indptr, cols, vals, weight_s,
            full_s, shared_s, totals, hint, taken, values, counts,
        )  # fmt: skip
        surplus[ahead] = values[BAR] - bar
        if surplus[ahead] > 0.0:
            return ahead + 1
    return 0


@kernel
def _bonuses(path_probs: Any, expandable: Any, growth: Any, node_price: float, bonus: Any) -> None:
    """Write what a chain of 1 to J phantoms under each node gains at best, float64[N, J]."""
    for v in range(path_probs.size):
        if not expandable[v]:
            continue
        prob = path_probs[v]
        total = 0.0
        for ahead in range(growth.shape[1]):
            prob *= growth[v, ahead]
            total += max(0.0, prob - node_price)
            bonus[v, ahead] = total
