"""How good a subproblem of the branch and bound can be at best. Private kernels.

A subproblem says of every node whether it is in, out or open. Its bound: affine minorants replace
the tables (`_terms`), the open nodes share the columns that the nodes in leave, and the tree
knapsack takes the best of every size, so that `tau_s` and the node limit enter as they are. Nodes
through which, or without which, even the bound does not beat the best selection known become out or
in.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from specfit.core._jit import kernel
from specfit.core.search._rows import LANES, add_row, charge
from specfit.core.search._terms import (
    RESIDENT,
    Minorant,
    Terms,
    layer_loads,
    measure,
    move_minorant,
    new_minorant,
    support_below,
)
from specfit.core.search._tree import IN, OPEN, OUT, decide

TOKENS, SECONDS, LAMBDA, BAR, UPPER = 0, 1, 2, 3, 4
"""A and T of the best selection, the price in force, the gain to beat, a bound on any gain."""

SLACK = 2e-14
"""Gains below this part of the expected committed tokens count as rounding."""

TOUCHES = 2
"""Times that the minorants are moved to the best selection of the bound, in one subproblem."""


class Tree(NamedTuple):
    """A drafted tree, its limit, and what is asked of it."""

    parents: Any  # int32[N]
    profits: Any  # float64[N]
    order: Any  # int64[N], depth first
    sizes: Any  # int64[N], of each branch
    limit: int
    is_ratio: bool


class Best(NamedTuple):
    """The best selection so far; numbers sit in ``values`` at the positions above."""

    mask: Any  # bool[N]
    values: Any  # float64[5]


class Scratch(NamedTuple):
    """Memory that every subproblem uses again."""

    fixed_load: Any  # float64[C], of the nodes in
    open_load: Any  # float64[C], of the nodes in and open
    unit: Any  # float64[C]
    lanes: Any  # float64[LANES]
    seconds: Any  # float64[N]
    gains: Any  # float64[N]
    branch: Any  # float64[N]
    through: Any  # float64[N]
    table: Any  # float64[N+1, limit+1]
    chosen: Any  # bool[N]
    compute: Any  # float64[L]
    copies: Any  # float64[L]
    fewest: Any  # float64[L]
    most: Any  # float64[L]
    minorant: Minorant


@kernel
def new_scratch(num_nodes: int, limit: int, num_columns: int, num_layers: int) -> Scratch:
    return Scratch(
        np.empty(num_columns), np.empty(num_columns), np.empty(num_columns), np.empty(LANES),
        np.empty(num_nodes), np.empty(num_nodes), np.empty(num_nodes), np.empty(num_nodes),
        np.empty((num_nodes + 1, limit + 1)), np.empty(num_nodes, np.bool_),
        np.empty(num_layers), np.empty(num_layers), np.empty(num_layers), np.empty(num_layers),
        new_minorant(num_layers),
    )  # fmt: skip


@kernel
def adopt(tree: Tree, terms: Terms, best: Best, price: float, scratch: Scratch) -> None:
    """Start with the selection in ``scratch.chosen``."""
    tokens, seconds = measure(
        terms, tree.profits, scratch.chosen, scratch.unit, scratch.compute, scratch.copies
    )
    best.mask[:] = scratch.chosen
    best.values[TOKENS], best.values[SECONDS] = tokens, seconds
    best.values[LAMBDA] = tokens / seconds if tree.is_ratio else price
    best.values[BAR] = 0.0 if tree.is_ratio else tokens - price * seconds


@kernel
def offer(tree: Tree, terms: Terms, best: Best, scratch: Scratch) -> bool:
    """Make ``scratch.chosen`` the best selection if it beats the bar, or ties with fewer nodes.

    Leaves its layer loads in scratch.
    """
    tokens, seconds = measure(
        terms, tree.profits, scratch.chosen, scratch.unit, scratch.compute, scratch.copies
    )
    values = best.values
    gain = tokens - values[LAMBDA] * seconds
    slack = 0.5 * SLACK * values[TOKENS]
    ties_smaller = gain >= values[BAR] - slack and scratch.chosen.sum() < best.mask.sum()
    if not (gain > values[BAR] + slack or ties_smaller):
        return False
    best.mask[:] = scratch.chosen
    values[TOKENS], values[SECONDS] = tokens, seconds
    if tree.is_ratio:
        values[LAMBDA] = tokens / seconds
    values[BAR] = 0.0 if tree.is_ratio else gain
    return True


@kernel
def bar_of(best: Best) -> float:
    """Return the gain that a better selection must exceed, rounding allowed for."""
    return float(best.values[BAR] + SLACK * best.values[TOKENS])


@kernel
def bound_of(tree: Tree, terms: Terms, best: Best, state: Any, scratch: Scratch) -> float:
    """Bound the gain of a subproblem, fix what the bound decides, offer what the bound selects."""
    bound = np.inf
    changed = True
    while changed:
        _load(terms, state, scratch)
        changed = False
        layer_loads(terms, scratch.open_load, scratch.compute, scratch.most)
        layer_loads(terms, scratch.fixed_load, scratch.compute, scratch.fewest)
        scratch.copies[:] = scratch.fewest
        size = max(1, np.sum(state == IN))
        if size > tree.limit:
            return -np.inf
        part = 1.0
        for touch in range(TOUCHES):
            move_minorant(
                terms, scratch.minorant, part, size, scratch.compute, scratch.copies,
                scratch.fewest, scratch.most,
            )  # fmt: skip
            constant = _charge(terms, state, scratch)
            gain, size = _best_size(tree, terms, best, state, constant, scratch)
            bound = min(bound, gain)
            if bound <= bar_of(best):
                return bound
            _trace(tree, state, size, scratch)
            if offer(tree, terms, best, scratch) and tree.is_ratio:
                gain, size = _best_size(tree, terms, best, state, constant, scratch)
                bound = min(bound, gain)
                if bound <= bar_of(best):
                    return bound
            part = 1.0 / (touch + 2)
            if _fix(tree, terms, best, state, size, constant, scratch):
                changed = True
                break
    return bound


@kernel
def _load(terms: Terms, state: Any, scratch: Scratch) -> None:
    """Sum the rows of the nodes in, and of those in or open."""
    scratch.fixed_load[:] = 0.0
    for v in range(state.size):
        if state[v] == IN:
            add_row(terms.rows, v, scratch.fixed_load, 1.0)
    scratch.open_load[:] = scratch.fixed_load
    for v in range(state.size):
        if state[v] == OPEN:
            add_row(terms.rows, v, scratch.open_load, 1.0)


@kernel
def _charge(terms: Terms, state: Any, scratch: Scratch) -> float:
    """Write what the minorant charges each open node; return what it charges the nodes in."""
    minorant = scratch.minorant
    constant = terms.draft_s
    for layer in range(minorant.start.size):
        constant += minorant.start[layer]
    for c in range(scratch.unit.size):
        layer = terms.layer_of[c]
        weight_s = (
            minorant.compute_part[layer] * terms.rows.weight_s[c]
            + minorant.slope[layer] * terms.units[c]
        )
        fixed = min(1.0, scratch.fixed_load[c])
        constant += weight_s * fixed
        others = scratch.open_load[c] - scratch.fixed_load[c]
        room = 1.0 - fixed
        scratch.unit[c] = weight_s if others <= room else weight_s * room / others
    for v in range(state.size):
        if state[v] == OPEN:
            scratch.seconds[v] = charge(terms.rows, v, scratch.unit, scratch.lanes)
        else:
            scratch.seconds[v] = 0.0
    return constant


@kernel
def _tau_part(terms: Terms, minorant: Minorant) -> float:
    """Return the part of `tau_s` that the minorant charges."""
    if terms.overlap == RESIDENT:
        return 1.0
    return float(minorant.compute_part.sum() / minorant.compute_part.size)


@kernel
def _best_size(
    tree: Tree, terms: Terms, best: Best, state: Any, constant: float, scratch: Scratch
) -> tuple[float, int]:
    """Return the best gain under the charges of any size, and the smallest size that attains it."""
    price = best.values[LAMBDA]
    num_in, num_live = 0, 0
    for v in range(state.size):
        scratch.gains[v] = tree.profits[v] - price * scratch.seconds[v]
        num_in += state[v] == IN
        num_live += state[v] != OUT
    limit = min(tree.limit, num_live)
    _fill_table(tree, state, limit, scratch)
    tau_price = price * _tau_part(terms, scratch.minorant)
    top, size = -np.inf, num_in
    for n in range(num_in, limit + 1):
        gain = scratch.table[0, n] - tau_price * terms.tau_s[n]
        if gain > top + 0.1 * SLACK * best.values[TOKENS]:
            top, size = gain, n
    return top - price * constant, size


@kernel
def _fill_table(tree: Tree, state: Any, limit: int, scratch: Scratch) -> None:
    """Fill ``table[i, n]``, the best gain of n nodes from depth-first position i on, or -inf."""
    table, num_nodes = scratch.table, state.size
    table[num_nodes, : limit + 1] = -np.inf
    table[num_nodes, 0] = 0.0
    for i in range(num_nodes - 1, -1, -1):
        v = tree.order[i]
        skip = i + tree.sizes[v]
        if state[v] == OUT:
            for n in range(limit + 1):
                table[i, n] = table[skip, n]
        elif state[v] == IN:
            table[i, 0] = -np.inf
            for n in range(1, limit + 1):
                table[i, n] = table[i + 1, n - 1] + scratch.gains[v]
        else:
            table[i, 0] = table[skip, 0]
            for n in range(1, limit + 1):
                table[i, n] = max(table[i + 1, n - 1] + scratch.gains[v], table[skip, n])


@kernel
def _trace(tree: Tree, state: Any, size: int, scratch: Scratch) -> None:
    """Mark the nodes that attain ``table[0, size]`` in ``scratch.chosen``."""
    table, chosen = scratch.table, scratch.chosen
    chosen[:] = False
    i = 0
    while i < state.size:
        v = tree.order[i]
        skip = i + tree.sizes[v]
        take = state[v] == IN
        if state[v] == OPEN and size > 0:
            take = table[i + 1, size - 1] + scratch.gains[v] > table[skip, size]
        if take:
            chosen[v] = True
            size -= 1
            i += 1
        else:
            i = skip


@kernel
def _fix(
    tree: Tree, terms: Terms, best: Best, state: Any, size: int, constant: float, scratch: Scratch
) -> bool:
    """Decide open nodes by a bound in which a line stands for `tau_s`; return whether any was."""
    num_in, num_live = 0, 0
    for v in range(state.size):
        num_in += state[v] == IN
        num_live += state[v] != OUT
    limit = min(tree.limit, num_live)
    price = best.values[LAMBDA]
    tau_price = price * _tau_part(terms, scratch.minorant)
    start, slope = support_below(terms.tau_s, float(num_in), float(limit), float(size))
    toll, constant = tau_price * slope, price * constant + tau_price * start
    if size == limit and num_in < limit < num_live:
        # The node limit binds: charge what the last node was worth, which is a line below as well.
        worth = scratch.table[0, size] - scratch.table[0, size - 1]
        constant -= max(0.0, worth - toll) * limit
        toll = max(toll, worth)
    return decide(
        tree.parents, scratch.gains, toll, constant, bar_of(best), state, scratch.branch,
        scratch.through,
    )  # fmt: skip
