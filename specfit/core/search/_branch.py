"""Branch and bound for general monotone costs. Private kernels.

Subproblems (`_bound`) are worked through depth first, so that memory stays small. What a bound
leaves open is branched on: the likeliest open node in, or out with its branch.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specfit.core._jit import kernel
from specfit.core.search._bound import (
    BAR,
    LAMBDA,
    SECONDS,
    SLACK,
    TOKENS,
    UPPER,
    Best,
    Scratch,
    Tree,
    adopt,
    bar_of,
    bound_of,
    new_scratch,
)
from specfit.core.search._knapsack import depth_first
from specfit.core.search._rows import rows_of
from specfit.core.search._terms import Terms
from specfit.core.search._tree import IN, OPEN, OUT


@kernel
def search_general(
    parents: Any,  # int32[N]
    profits: Any,  # float64[N]
    limit: int,
    draft_s: float,
    tau_s: Any,  # float64[>= limit+1]
    is_ratio: bool,
    price: float,  # unused for a ratio
    indptr: Any,
    cols: Any,
    vals: Any,
    weight_s: Any,
    units: Any,  # float64[C]
    layer_of: Any,  # int32[C]
    layer_s: Any,  # float64[L, H+1]
    overlap: int,
    max_expansions: int,
    mask: Any,  # bool[N], out
    values: Any,  # float64[5], out
) -> tuple[int, bool]:
    """Find the best selection; return the number of subproblems, and whether it is proved best."""
    order, sizes = depth_first(parents)
    tree = Tree(parents, profits, order, sizes, limit, is_ratio)
    terms = Terms(
        draft_s, tau_s, rows_of(indptr, cols, vals, weight_s), units, layer_of, layer_s, overlap
    )
    best = Best(mask, values)
    scratch = new_scratch(parents.size, limit, weight_s.size, layer_s.shape[0])
    scratch.chosen[:] = False
    scratch.chosen[0] = True
    adopt(tree, terms, best, price, scratch)
    root_s = values[SECONDS]
    num_expansions, open_bound = _descend(tree, terms, best, max_expansions, scratch)
    is_optimal = open_bound == -np.inf
    if is_optimal:
        num_expansions += _look_smaller(tree, terms, best, max_expansions - num_expansions, scratch)
    gap = max(0.0, open_bound - values[BAR])
    if is_ratio:
        values[UPPER] = values[LAMBDA] + gap / root_s
    else:
        values[UPPER] = values[BAR] + gap
    return num_expansions, is_optimal


@kernel
def _look_smaller(
    tree: Tree, terms: Terms, best: Best, max_expansions: int, scratch: Scratch
) -> int:
    """Replace an optimum by one as good with fewer nodes while there is one.

    Returns the number of subproblems.
    """
    values = best.values
    tie = values[BAR] - 2.0 * SLACK * values[TOKENS]
    num_expansions = 0
    while best.mask.sum() > 1 and num_expansions < max_expansions:
        size = best.mask.sum()
        values[BAR] = tie
        smaller = Tree(tree.parents, tree.profits, tree.order, tree.sizes, size - 1, tree.is_ratio)
        count, _ = _descend(smaller, terms, best, max_expansions - num_expansions, scratch)
        num_expansions += count
        if best.mask.sum() == size:
            break
    values[BAR] = 0.0 if tree.is_ratio else values[TOKENS] - values[LAMBDA] * values[SECONDS]
    return num_expansions


@kernel
def _descend(
    tree: Tree, terms: Terms, best: Best, max_expansions: int, scratch: Scratch
) -> tuple[int, float]:
    """Work through the subproblems; return how many, and the best bound left open, or -inf."""
    num_nodes = tree.parents.size
    stack = np.empty((num_nodes + 2, num_nodes), np.int8)
    bounds = np.empty(num_nodes + 2)
    stack[0, :] = OPEN
    stack[0, 0] = IN
    bounds[0] = np.inf
    top = 1
    num_expansions = 0
    state = np.empty(num_nodes, np.int8)
    while top > 0 and num_expansions < max_expansions:
        top -= 1
        if bounds[top] <= bar_of(best):
            continue
        state[:] = stack[top]
        num_expansions += 1
        bound = bound_of(tree, terms, best, state, scratch)
        pick = _pick(tree, state)
        if bound <= bar_of(best) or pick < 0:
            continue
        likely_in = scratch.chosen[pick]
        for turn in range(2):
            stack[top] = state
            if likely_in == (turn == 1):
                _put_in(tree.parents, stack[top], pick)
            else:
                _put_out(tree.parents, stack[top], pick)
            bounds[top] = bound
            top += 1
    left = -np.inf
    for i in range(top):
        if bounds[i] > bar_of(best):
            left = max(left, bounds[i])
    return num_expansions, left


@kernel
def _pick(tree: Tree, state: Any) -> int:
    """Return the open node to branch on, the likeliest; its parent is in. -1 if none is open."""
    pick = -1
    for v in range(state.size):
        if state[v] == OPEN and (pick < 0 or tree.profits[v] > tree.profits[pick]):
            pick = v
    return pick


@kernel
def _put_in(parents: Any, state: Any, node: int) -> None:
    while state[node] != IN:
        state[node] = IN
        node = parents[node]


@kernel
def _put_out(parents: Any, state: Any, node: int) -> None:
    state[node] = OUT
    for v in range(node + 1, state.size):
        if state[parents[v]] == OUT:
            state[v] = OUT
