"""One more level, answered in one call: price its nodes, search, look ahead. Private kernel.

Between two passes of a model every separate call finds cold caches and costs several times what its
arithmetic does; so the three steps of a level under affine costs are one call.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from specfit.core._jit import kernel
from specfit.core.search import _affine, _checks
from specfit.core.search._pricing import price_probs
from specfit.core.search._routing import price_routing
from specfit.core.search._stop import look_ahead

BAD_TREE, BAD_GROWTH, BAD_VALUE = -1, -2, -3


class Task(NamedTuple):
    """What is asked of a level, and where the selection goes."""

    draft_s: Any  # float64[> level+J]
    level: int  # the drafted levels so far
    fixed_s: float  # seconds without drafting, nodes and experts
    node_s: float
    mode: int  # RATIO or PRICE, with the price
    price: float
    growth: Any  # float64[J]
    expandable: Any  # bool[N], not read if J is 0
    start: Any  # bool[<= N], the selection of the level before
    mask: Any  # bool[N], out; this and the next two: see `search_affine`
    numbers: Any  # float64[4], out
    counts: Any  # int64[2], out


@kernel
def advance_probs(
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
    draft_s: Any,  # this and the rest: see `Task`
    level: int,
    fixed_s: float,
    node_s: float,
    mode: int,
    price: float,
    growth: Any,
    expandable: Any,
    start: Any,
    mask: Any,
    numbers: Any,
    counts: Any,
) -> int:
    """Price predicted probabilities, then `answer`; BAD_VALUE - i if flat entry i is none."""
    fault = _fault_of(parents, path_probs, growth)
    if fault:
        return int(fault)
    bad = price_probs(
        probs, parents, path_probs, discount, first, columns, factors, survival, values, weight_s,
        full_s, totals,
    )  # fmt: skip
    if bad >= 0:
        return BAD_VALUE - int(bad)
    task = Task(
        draft_s, level, fixed_s, node_s, mode, price, growth, expandable, start, mask, numbers,
        counts,
    )  # fmt: skip
    indptr, cols = np.zeros(0, np.int64), np.zeros(0, np.int32)
    full = full_s[: parents.size]
    return int(
        answer(
            parents, path_probs, task, indptr, cols, values.reshape(-1), weight_s, full, totals,
            np.zeros(0),
        )
    )  # fmt: skip


@kernel
def advance_routing(
    parents: Any,  # int32[N]
    path_probs: Any,  # float64[N]
    routing: Any,  # int16[n, L, K], the new nodes'
    first: int,  # number of nodes that are priced already
    num_columns: int,  # this and the next fourteen: see `price_routing`
    num_experts: int,
    expert_s: Any,
    is_priced: Any,
    priced: Any,
    is_left: Any,
    column_of: Any,
    expert_of: Any,
    weight_s: Any,
    totals: Any,
    worths: Any,
    newest: Any,
    indptr: Any,
    cols: Any,
    full_s: Any,
    ones: Any,  # float32[enough]
    draft_s: Any,  # this and the rest: see `Task`
    level: int,
    fixed_s: float,
    node_s: float,
    mode: int,
    price: float,
    growth: Any,
    expandable: Any,
    start: Any,
    mask: Any,
    numbers: Any,
    counts: Any,
) -> tuple[int, int]:
    """Price hard sets, then `answer`; returns also what `price_routing` does."""
    num_nodes = parents.size
    fault = _fault_of(parents, path_probs, growth)
    if fault:
        return fault, num_columns
    found = price_routing(
        routing, parents, path_probs, first, num_columns, num_experts, expert_s, is_priced, priced,
        is_left, column_of, expert_of, weight_s, totals, worths, newest, indptr, cols, full_s,
    )  # fmt: skip
    if found < 0:
        return BAD_VALUE, found
    task = Task(
        draft_s, level, fixed_s, node_s, mode, price, growth, expandable, start, mask, numbers,
        counts,
    )  # fmt: skip
    entries = max(1, indptr[num_nodes])
    levels = answer(
        parents, path_probs, task, indptr[: num_nodes + 1], cols[:entries], ones[:entries],
        weight_s[:found], full_s[:num_nodes], totals[:found], worths[:found],
    )  # fmt: skip
    return levels, found


@kernel
def _fault_of(parents: Any, path_probs: Any, growth: Any) -> int:
    """Return BAD_TREE or BAD_GROWTH if something is wrong, else 0."""
    fault, _ = _checks.check_tree(parents, path_probs)
    if fault:
        return BAD_TREE
    return 0 if _checks.all_probs(growth) else BAD_GROWTH


@kernel
def answer(
    parents: Any,  # int32[N]
    path_probs: Any,  # float64[N]
    task: Task,
    indptr: Any,  # this and the rest: see `search_affine`
    cols: Any,
    vals: Any,
    weight_s: Any,
    full_s: Any,
    totals: Any,
    worths: Any,
) -> int:
    """Search, then return how many further levels win, 0 if none does."""
    num_nodes, ahead = parents.size, task.growth.size
    hint = np.zeros(num_nodes, np.bool_)
    hint[: task.start.size] = task.start
    task.counts[:] = 0
    spent_s = task.draft_s[task.level] + task.fixed_s
    _affine.search_affine(
        parents, path_probs, spent_s, task.node_s, task.mode, task.price, indptr, cols,
        vals, weight_s, full_s, totals, worths, hint, task.mask, task.numbers, task.counts,
    )  # fmt: skip
    if ahead == 0:
        return 0
    later_s = task.draft_s[task.level + 1 : task.level + 1 + ahead] + task.fixed_s
    by_node = np.empty((num_nodes, ahead))
    by_node[:] = task.growth
    bar = 0.0 if task.mode == _affine.RATIO else task.numbers[_affine.BAR]
    return int(
        look_ahead(
            parents, path_probs, task.expandable, by_node, later_s, task.node_s,
            task.numbers[_affine.LAMBDA], bar, indptr, cols, vals, weight_s, full_s, totals,
            np.empty(ahead),
        )
    )  # fmt: skip
