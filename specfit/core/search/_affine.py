"""The affine search: shared prices bound and prune, a cut decides the rest. Private kernels.

A round charges each live node a share of every column such that the charges of any selection never
exceed what it really costs. The best subtree under these charges is then an upper bound, and a node
through which even the bound does not beat the best selection known can go with its branch. Fewer
live nodes share less, so the charges rise and the next round prunes more. At first
branches go that are not worth it even if experts are free. Then two ways to share are used:

* by worth: each column's cost is spread over all live nodes in proportion to their rows and to
  their expected tokens, as far as a node's own row goes;
* best first: the nodes of the best known selection carry as much of it as they can, the others the
  rest, each in proportion to their rows.

When neither removes a node, a minimum cut over the live nodes gives the optimum at this price. A
better selection raises the price (Dinkelbach) and the rounds go on inside it: optima are nested. At
the end whatever only ties is dropped from the best selection, so that the smallest optimum remains.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specfit.core._jit import kernel
from specfit.core.search._cut import closure
from specfit.core.search._rows import Rows, add_row, capped_seconds, load_of, rows_of
from specfit.core.search._sharing import (
    BAR,
    LAMBDA,
    SECONDS,
    TOKENS,
    Best,
    Task,
    charge_best_first,
    charge_by_worth,
    charge_evenly,
    keep_charges,
    unload,
)
from specfit.core.search._tree import best_ratio, best_subtree, drop_hopeless

RATIO, PRICE, SIGN = 0, 1, 2
"""What is maximised: A / T; A - price * T; or only whether some A - price * T beats a bar."""

SLACK = 5e-14
"""Gains below this part of the expected committed tokens count as rounding."""


@kernel
def search_affine(
    parents: Any,  # int32[N]
    profits: Any,  # float64[N]
    fixed_s: float,
    node_s: float,
    mode: int,
    price: float,  # unused for RATIO
    indptr: Any,
    cols: Any,
    vals: Any,
    weight_s: Any,
    full_s: Any,  # float64[N], seconds of each row if nobody shares
    totals: Any,  # float64[C]
    hint: Any,  # bool[<= N], a selection to start from, or nothing
    mask: Any,  # bool[N], out
    values: Any,  # float64[4], out: see TOKENS, SECONDS, LAMBDA, BAR; for SIGN the bar is an input
    counts: Any,  # int64[2], in and out: rounds and cuts are added
) -> None:
    """See `search_rows`; takes the demand matrix as separate arrays."""
    search_rows(
        parents, profits, fixed_s, node_s, mode, price, rows_of(indptr, cols, vals, weight_s),
        full_s, totals, hint, np.zeros(0, np.bool_), np.zeros(0), mask, values, counts,
    )  # fmt: skip


@kernel
def search_rows(
    parents: Any,  # this and the rest: see `search_affine`
    profits: Any,
    fixed_s: float,
    node_s: float,
    mode: int,
    price: float,
    rows: Rows,
    full_s: Any,
    totals: Any,
    hint: Any,
    is_read: Any,  # bool[N], or bool[0]: all are
    charged_s: Any,  # float64[N], out, or float64[0]: see `keep_charges`
    mask: Any,
    values: Any,
    counts: Any,
) -> None:
    """Find the smallest optimal selection of an affine problem.

    A node that is not read has an empty row. Where a cut would have to decide on one, the search
    ends with `mask` all nodes that are left: reading some of them is cheaper.
    """
    num_nodes = parents.size
    columns = np.empty((4, rows.weight_s.size))
    base, load, scratch, first = columns[0], columns[1], columns[2], columns[3]
    base[:] = 0.0
    add_row(rows, 0, base, 1.0)
    load[:] = totals
    task = Task(parents, profits, fixed_s, node_s, rows, base, mode)
    best = Best(mask, values)
    sums, flags = np.empty((3, num_nodes)), np.empty((3, num_nodes), np.bool_)
    gains, seconds, through = sums[0], sums[1], sums[2]
    live, taken, summed = flags[0], flags[1], flags[2]
    live[:] = True
    _start(task, best, price, full_s, hint, scratch, live, seconds, gains, taken)
    _drop_worthless(task, best, live, gains)
    summed[:] = True
    shrinking = False
    while True:
        if not shrinking:
            shrinking = _prune(
                task, best, full_s, live, summed, load, scratch, first, seconds, gains, through,
                taken, counts,
            )  # fmt: skip
            if shrinking and charged_s.size:
                keep_charges(task, live, seconds, scratch, charged_s)
        if shrinking:
            if mode == SIGN or _is_smallest(
                task, best, full_s, live, load, scratch, seconds, gains, taken
            ):
                return
        if _any_unread(live, is_read):
            mask[:] = live
            return
        counts[1] += 1
        closure(
            parents, profits, node_s, live, values[LAMBDA], _margin(best), rows, base, load, taken
        )
        if shrinking:
            tokens, total_s = _measure(task, taken, scratch)
            _adopt(task, best, taken, tokens, total_s)
            return
        shrinking = not _offer(task, best, taken, scratch)
        if not shrinking and mode != RATIO:
            return
        if not shrinking:
            live[:] = taken
            summed[:] = taken
            load_of(rows, live, load)


@kernel
def is_still_best(
    parents: Any,  # this and the next five: see `search_affine`
    profits: Any,
    fixed_s: float,
    node_s: float,
    mode: int,
    price: float,
    rows: Rows,
    full_s: Any,
    charged_s: Any,  # float64[N], of any selection together at most what its experts cost
    chosen: Any,  # bool[<= N], an earlier selection, or nothing for the root alone
    mask: Any,  # bool[N], out, as is the next
    values: Any,
) -> bool:
    """Return whether a selection, re-priced, is the smallest best one, as known charges prove.

    One pass over the tree; it stands for the whole search if so, and says nothing if not.
    """
    num_nodes = parents.size
    sums, flags = np.empty((2, num_nodes)), np.empty((2, num_nodes), np.bool_)
    seconds, gains, live, taken = sums[0], sums[1], flags[0], flags[1]
    mask[:] = False
    mask[: chosen.size] = chosen
    mask[0] = True
    is_root_alone = not mask[1:].any()
    columns = np.zeros((3, 0 if is_root_alone else rows.weight_s.size))
    base, load, scratch = columns[0], columns[1], columns[2]
    task, best = Task(parents, profits, fixed_s, node_s, rows, base, mode), Best(mask, values)
    values[LAMBDA], values[BAR] = price, 0.0
    root_s = full_s[0] + node_s + fixed_s
    if is_root_alone:
        _adopt(task, best, mask, profits[0], root_s)
    else:
        add_row(rows, 0, base, 1.0)
        tokens, total_s = _measure(task, mask, scratch)
        _adopt(task, best, mask, tokens, total_s)
    live[:] = True
    for v in range(num_nodes):
        seconds[v] = charged_s[v] + node_s
    seconds[0] = root_s
    bound = best_subtree(parents, profits, seconds, live, values[LAMBDA], 0.0, gains, taken)
    if bound > _bar(best):
        return False
    return is_root_alone or _is_smallest(
        task, best, full_s, live, load, scratch, seconds, gains, taken
    )


@kernel
def _any_unread(live: Any, is_read: Any) -> bool:
    """Return whether a live node is not read."""
    for v in range(is_read.size):
        if live[v] and not is_read[v]:
            return True
    return False


@kernel
def _start(
    task: Task,
    best: Best,
    price: float,
    full_s: Any,
    hint: Any,
    load: Any,
    everything: Any,  # bool[N], all true
    seconds: Any,
    gains: Any,
    taken: Any,
) -> None:
    """Set price and bar from the better of the hint and the best selection without sharing."""
    for v in range(seconds.size):
        seconds[v] = full_s[v] + task.node_s
    seconds[0] += task.fixed_s
    best.mask[:] = False
    best.mask[0] = True
    if task.mode == SIGN:
        best.values[TOKENS] = task.profits[0]
        best.values[LAMBDA] = price
        return
    best.values[TOKENS] = task.profits[0]
    best.values[SECONDS] = seconds[0]
    is_ratio = task.mode == RATIO
    best.values[LAMBDA] = task.profits[0] / seconds[0] if is_ratio else price
    best.values[BAR] = 0.0 if is_ratio else task.profits[0] - price * seconds[0]
    if hint.size and hint[0]:
        taken[:] = False
        taken[: hint.size] = hint
        _offer(task, best, taken, load)
        return
    known = best.values[LAMBDA]
    if is_ratio:
        better = (
            best_ratio(task.parents, task.profits, seconds, everything, known, gains, taken) > known
        )
    else:
        gain = best_subtree(
            task.parents, task.profits, seconds, everything, known, 0.0, gains, taken
        )
        better = gain > best.values[BAR]
    if better:
        _offer(task, best, taken, load)


@kernel
def _measure(task: Task, chosen: Any, load: Any) -> tuple[float, float]:
    """Return A and T of a selection; `load` is scratch."""
    tokens = 0.0
    num_nodes = 0
    for v in range(chosen.size):
        if chosen[v]:
            tokens += task.profits[v]
            num_nodes += 1
    load_of(task.rows, chosen, load)
    columns_s = capped_seconds(task.rows.weight_s, load)
    return tokens, task.fixed_s + task.node_s * num_nodes + columns_s


@kernel
def _adopt(task: Task, best: Best, chosen: Any, tokens: float, seconds: float) -> None:
    """Make `chosen` the best selection."""
    best.mask[:] = chosen
    best.values[TOKENS] = tokens
    best.values[SECONDS] = seconds
    if task.mode == RATIO:
        best.values[LAMBDA] = tokens / seconds
    else:
        best.values[BAR] = tokens - best.values[LAMBDA] * seconds


@kernel
def _offer(task: Task, best: Best, chosen: Any, load: Any) -> bool:
    """Make `chosen` the best selection if it beats the bar; `load` is scratch."""
    tokens, seconds = _measure(task, chosen, load)
    better = tokens - best.values[LAMBDA] * seconds > best.values[BAR] + SLACK * tokens
    if better:
        _adopt(task, best, chosen, tokens, seconds)
    return bool(better)


@kernel
def _bar(best: Best) -> float:
    """Return the gain that a better selection must exceed, rounding allowed for."""
    return float(best.values[BAR] + SLACK * best.values[TOKENS])


@kernel
def _prune(
    task: Task,
    best: Best,
    full_s: Any,
    live: Any,
    summed: Any,  # bool[N], whose rows are in `load`
    load: Any,  # float64[C], in and out: sum of the rows of the live nodes
    scratch: Any,  # float64[C]
    first: Any,  # float64[C], scratch too
    seconds: Any,  # float64[N], scratch, as are the next three
    gains: Any,
    through: Any,
    taken: Any,
    counts: Any,
) -> bool:
    """Share, bound and remove until nothing goes; return whether that proves the best selection."""
    best_first = False
    while True:
        counts[0] += 1
        if best_first:
            charge_best_first(task, best, full_s, live, load, scratch, first, taken, seconds)
        else:
            charge_by_worth(task, full_s, live, load, scratch, seconds)
        while True:
            bound = best_subtree(
                task.parents, task.profits, seconds, live, best.values[LAMBDA], 0.0, gains, taken
            )
            if bound <= _bar(best):
                return True
            if not _offer(task, best, taken, scratch):
                break
            if task.mode == SIGN:
                return True
        dropped = drop_hopeless(task.parents, gains, live, through, _bar(best))
        unload(task, live, summed, load)
        if dropped:
            best_first = False
        elif best_first:
            return False
        else:
            best_first = True


@kernel
def _drop_worthless(task: Task, best: Best, live: Any, gains: Any) -> None:
    """Remove each branch that gains nothing even if experts are free: no selection misses it."""
    toll = best.values[LAMBDA] * task.node_s
    for v in range(live.size):
        gains[v] = task.profits[v] - toll
    for v in range(live.size - 1, 0, -1):
        if gains[v] > 0.0:
            gains[task.parents[v]] += gains[v]
    for v in range(1, live.size):
        live[v] = live[task.parents[v]] and gains[v] > 0.0


@kernel
def _is_smallest(
    task: Task,
    best: Best,
    full_s: Any,
    live: Any,
    load: Any,
    scratch: Any,
    seconds: Any,
    gains: Any,
    taken: Any,
) -> bool:
    """Return whether each branch of the best selection gains; leaves only its nodes live.

    Among the nodes of a best selection the even charges add up to what it costs. If no branch of it
    only ties under them, no smaller selection is as good. If one does, a cut has to tell.
    """
    if not best.mask[1:].any():
        return True
    live[:] = best.mask
    load_of(task.rows, live, load)
    charge_evenly(task, full_s, live, load, scratch, seconds)
    best_subtree(
        task.parents, task.profits, seconds, live, best.values[LAMBDA], _margin(best), gains, taken
    )
    for v in range(live.size):
        if taken[v] != live[v]:
            return False
    return True


@kernel
def _margin(best: Best) -> float:
    """Return what a node must gain not to count as a tie."""
    return float(SLACK * best.values[TOKENS] / best.mask.size)
