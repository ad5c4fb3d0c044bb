"""One more level, answered in one call: price its nodes, search, look ahead. Private kernel.

Between two passes of a model every separate call finds cold caches and costs several times what its
arithmetic does; so the three steps of a level under affine costs are one call.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from specfit.core._jit import kernel
from specfit.core.search import _affine, _checks, _sharing
from specfit.core.search._memory import Memory, memory_of
from specfit.core.search._pricing import price_probs
from specfit.core.search._routing import (
    ANY_PRICED,
    NUM_COLUMNS,
    begin,
    read_all,
    read_nodes,
    take_routing,
)
from specfit.core.search._rows import Rows, rows_of
from specfit.core.search._stop import look_ahead_rows
from specfit.core.search._tree import best_subtree

BAD_TREE, BAD_GROWTH, BAD_VALUE = -1, -2, -3

HOPE = 0.8
"""Part of its row's seconds that a node is guessed to cost, as it may share; decides no answer."""


class Task(NamedTuple):
    """What is asked of a level, and where the selection goes; the last arguments of a kernel."""

    draft_s: Any  # float64[D+1], read-only
    levels: int  # drafted so far
    fixed_s: float  # seconds of a pass without nodes and experts
    node_s: float
    mode: int  # RATIO or PRICE, with the price
    price: float
    growth: Any  # float64[J]
    expandable: Any  # bool[N], not read if J is 0
    start: Any  # bool[<= N], the selection of the level before
    mask: Any  # bool[N], out; see `search_affine`
    numbers: Any  # float64[6], out: the values of `search_affine`, then its counts


@kernel
def advance_probs(
    parents: Any,  # int32[N]
    path_probs: Any,  # float64[N]
    probs: Any,  # float32[n, l*E], the new nodes', in l layers
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
    levels: int,
    fixed_s: float,
    node_s: float,
    mode: int,
    price: float,
    growth: Any,
    expandable: Any,
    start: Any,
    mask: Any,
    numbers: Any,
) -> int:
    """Price predicted probabilities, search and look ahead.

    Returns how many further levels win, 0 if none does, or what is wrong: BAD_TREE, BAD_GROWTH, or
    BAD_VALUE - i if flat entry i is no probability.
    """
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
        draft_s, levels, fixed_s, node_s, mode, price, growth, expandable, start, mask, numbers
    )
    rows = rows_of(np.zeros(0, np.int64), np.zeros(0, np.int32), values.reshape(-1), weight_s)
    full, counts = full_s[: parents.size], np.zeros(2, np.int64)
    _affine.search_rows(
        parents, path_probs, draft_s[levels] + fixed_s, node_s, mode, price, rows, full, totals,
        start, np.zeros(0, np.bool_), np.zeros(0), mask, numbers, counts,
    )  # fmt: skip
    numbers[_sharing.ROUNDS], numbers[_sharing.CUTS] = counts[0], counts[1]
    return _look_ahead(parents, path_probs, task, rows, full, totals)


@kernel
def advance_routing(
    parents: Any,  # int32[N]
    path_probs: Any,  # float64[N]
    routing: Any,  # int16[n, L, K], the new nodes'
    first: int,  # number of nodes that are here already
    weight_s: Any,  # float64[L, E], read-only
    whole: Any,  # uint8[...], see `_memory.split`, and room for how many nodes
    capacity: int,
    draft_s: Any,  # this and the rest: see `Task`
    levels: int,
    fixed_s: float,
    node_s: float,
    mode: int,
    price: float,
    growth: Any,
    expandable: Any,
    start: Any,
    mask: Any,
    numbers: Any,
) -> int:
    """Price hard sets as far as the answer needs them; see `advance_probs`."""
    fault = _fault_of(parents, path_probs, growth)
    if fault:
        return int(fault)
    per_node = routing.shape[1] * routing.shape[2]
    memory = memory_of(whole, weight_s.size, per_node, capacity)
    bad = take_routing(routing, first, weight_s.shape[1], memory)
    if bad >= 0:
        return BAD_VALUE - bad
    task = Task(
        draft_s, levels, fixed_s, node_s, mode, price, growth, expandable, start, mask, numbers
    )
    expert_s, num_nodes = weight_s.reshape(-1), parents.size
    if first == 0:
        begin(expert_s, memory)
    rows, totals = _search_lazily(parents, path_probs, first, expert_s, memory, task)
    full_s = memory.full_s[:num_nodes]
    ahead = _look_ahead(parents, path_probs, task, rows, full_s, totals)
    if ahead == 0 or memory.is_read[:num_nodes].all():
        return ahead
    read_all(num_nodes, parents, expert_s, memory)
    rows, totals = _rows_so_far(memory, num_nodes)
    return _look_ahead(parents, path_probs, task, rows, full_s, totals)


@kernel
def _search_lazily(
    parents: Any, path_probs: Any, first: int, expert_s: Any, memory: Memory, task: Task
) -> tuple[Rows, Any]:
    """Find the best selection, reading nodes as far as that takes; return rows and totals then."""
    num_nodes, is_read, mask, numbers = parents.size, memory.is_read, task.mask, task.numbers
    node_s, mode, price = task.node_s, task.mode, task.price
    spent_s = task.draft_s[task.levels] + task.fixed_s
    if memory.state[ANY_PRICED] == 0:
        is_read[:num_nodes] = True
    wanted, likely = np.empty(num_nodes, np.int32), np.empty(num_nodes, np.bool_)
    if not is_read[0]:
        wanted[:] = 0
        wanted[0] = 1
        read_nodes(wanted, parents, expert_s, memory)
    if num_nodes > 1:
        _read_likely(
            parents, path_probs, spent_s, node_s, mode, price, expert_s, memory, likely, wanted
        )  # fmt: skip
    rows, totals = _rows_so_far(memory, num_nodes)
    full, charged, read = (
        memory.full_s[:num_nodes], memory.charged_s[:num_nodes], is_read[:num_nodes]
    )  # fmt: skip
    is_known = (first > 0 or num_nodes == 1) and _affine.is_still_best(
        parents, path_probs, spent_s, node_s, mode, price, rows, full, charged, task.start, mask,
        numbers,
    )  # fmt: skip
    is_known = is_known and not _want(parents, mask, is_read, 1, wanted)
    counts = np.zeros(2, np.int64)
    counts[0] = int(is_known)
    reach = 1
    kept = charged if first else charged[:0]  # after a whole tree hardly ever comes a level
    while not is_known:
        _affine.search_rows(
            parents, path_probs, spent_s, node_s, mode, price, rows, full, totals, likely, read,
            kept, mask, numbers, counts,
        )  # fmt: skip
        is_known = not _want(parents, mask, is_read, reach, wanted)
        if not is_known:
            read_nodes(wanted, parents, expert_s, memory)
            rows, totals = _rows_so_far(memory, num_nodes)
            reach *= 2
    numbers[_sharing.ROUNDS], numbers[_sharing.CUTS] = counts[0], counts[1]
    return rows, totals


@kernel
def _fault_of(parents: Any, path_probs: Any, growth: Any) -> int:
    """Return BAD_TREE or BAD_GROWTH if something is wrong, else 0."""
    fault, _ = _checks.check_tree(parents, path_probs)
    if fault:
        return BAD_TREE
    return 0 if _checks.all_probs(growth) else BAD_GROWTH


@kernel
def _read_likely(
    parents: Any,  # this and the next five: see `advance_routing`
    path_probs: Any,
    spent_s: float,
    node_s: float,
    mode: int,
    price: float,
    expert_s: Any,
    memory: Memory,
    taken: Any,  # bool[N], scratch
    wanted: Any,  # int32[N], scratch
) -> None:
    """Read on until the best selection that shares nothing has no node that is not read.

    It is left in `taken`. For RATIO that is the best at the rate of a selection found on the way.
    """
    num_nodes = parents.size
    sums = np.empty((2, num_nodes))
    seconds, gains = sums[0], sums[1]
    live = np.ones(num_nodes, np.bool_)
    full_s, is_read = memory.full_s, memory.is_read
    rate = path_probs[0] / (spent_s + node_s + full_s[0]) if mode == _affine.RATIO else price
    step = 0
    for node in range(num_nodes):
        seconds[node] = HOPE * full_s[node] + node_s
    seconds[0] = full_s[0] + node_s + spent_s
    while True:
        best_subtree(parents, path_probs, seconds, live, rate, 0.0, gains, taken)
        if not _want(parents, taken, is_read, 1 << step // 3, wanted):
            return
        if mode == _affine.RATIO:
            tokens, total_s = 0.0, spent_s
            for node in range(num_nodes):
                if taken[node] and is_read[node]:
                    tokens += path_probs[node]
                    total_s += full_s[node] + node_s
            rate = max(rate, tokens / total_s)
        read_nodes(wanted, parents, expert_s, memory)
        for node in range(1, num_nodes):
            seconds[node] = HOPE * full_s[node] + node_s
        step += 1


@kernel
def _want(parents: Any, chosen: Any, is_read: Any, reach: int, wanted: Any) -> bool:
    """Mark what to read: the root, and chosen nodes up to `reach` levels below nodes that are read.

    A child of a chosen node counts as chosen where `chosen`, bool[<= N], ends. Writes how far down
    each node is, 0 if it is not wanted, to int32[N]; returns whether any is.
    """
    wanted[0] = 0 if is_read[0] else 1
    found = wanted[0] > 0
    known = chosen.size
    for node in range(1, wanted.size):
        parent = parents[node]
        wanted[node] = 0
        if is_read[node] or not (is_read[parent] or wanted[parent]) or wanted[parent] >= reach:
            continue
        if chosen[node] if node < known else parent == 0 or (parent < known and chosen[parent]):
            wanted[node] = wanted[parent] + 1
            found = True
    return bool(found)


@kernel
def _rows_so_far(memory: Memory, num_nodes: int) -> tuple[Rows, Any]:
    """Return the rows of all nodes, empty ones where they are not read, and the totals."""
    num_columns = memory.state[NUM_COLUMNS]
    rows = Rows(
        memory.starts[:num_nodes], memory.ends[:num_nodes], memory.cols, memory.ones,
        memory.weight_s[:num_columns],
    )  # fmt: skip
    return rows, memory.totals[:num_columns]


@kernel
def _look_ahead(
    parents: Any,  # int32[N]
    path_probs: Any,  # float64[N]
    task: Task,
    rows: Rows,
    full_s: Any,
    totals: Any,
) -> int:
    """Return how many further levels win, 0 if none does."""
    ahead = task.growth.size
    if ahead == 0:
        return 0
    by_node = np.empty((parents.size, ahead))
    by_node[:] = task.growth
    later = task.levels + 1
    later_s = task.draft_s[later : later + ahead] + task.fixed_s
    bar = 0.0 if task.mode == _affine.RATIO else task.numbers[_sharing.BAR]
    return int(
        look_ahead_rows(
            parents, path_probs, task.expandable, by_node, later_s, task.node_s,
            task.numbers[_sharing.LAMBDA], bar, rows, full_s, totals, np.empty(ahead),
        )
    )  # fmt: skip
