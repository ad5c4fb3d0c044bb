"""One more level, answered in one call: price its nodes, search, look ahead. Private kernel.

Between two passes of a model every separate call finds cold caches and costs several times what its
arithmetic does; so the three steps of a level under affine costs are one call.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from specfit.core._jit import kernel
from specfit.core.search import _affine, _checks, _sharing
from specfit.core.search._pricing import price_probs
from specfit.core.search._routing import (
    ANY_PRICED,
    NUM_COLUMNS,
    Memory,
    begin,
    read_all,
    read_nodes,
    take_routing,
)
from specfit.core.search._rows import Rows, rows_of
from specfit.core.search._stop import look_ahead_rows
from specfit.core.search._tree import best_subtree

BAD_TREE, BAD_GROWTH, BAD_VALUE = -1, -2, -3

HOPE, HOPE_AGAIN = 0.8, 0.6
"""Part of its row's seconds that a node is guessed to cost, as it may share; decides no answer.

The second after an earlier level: who reads a little more can use its proof more often.
"""


class Task(NamedTuple):
    """What is asked of a level, and where the selection goes; the last arguments of a kernel."""

    spent_s: float  # seconds without nodes and experts
    later_s: Any  # float64[J], the same after 1 to J more levels
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
    spent_s: float,  # this and the rest: see `Task`
    later_s: Any,
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
    rows = rows_of(np.zeros(0, np.int64), np.zeros(0, np.int32), values.reshape(-1), weight_s)
    full = full_s[: parents.size]
    counts[:] = 0
    _affine.search_rows(
        parents, path_probs, spent_s, node_s, mode, price, rows, full, totals, start,
        np.zeros(0, np.bool_), np.zeros(0), mask, numbers, counts,
    )  # fmt: skip
    return _look_ahead(
        parents, path_probs, later_s, node_s, mode, growth, expandable, numbers, rows, full, totals
    )


@kernel
def advance_routing(
    parents: Any,  # int32[N]
    path_probs: Any,  # float64[N]
    routing: Any,  # int16[n, L, K], the new nodes'
    first: int,  # number of nodes that are here already
    num_experts: int,
    expert_s: Any,  # float64[L*E], weight by flat id
    is_priced: Any,  # bool[L*E], or bool[0]: see `begin`
    ones: Any,  # float32[enough]
    state: Any,  # this and the next fifteen: see `Memory`
    is_left: Any,
    column_of: Any,
    expert_of: Any,
    column_s: Any,
    totals: Any,
    newest: Any,
    offsets: Any,
    ids: Any,
    is_read: Any,
    starts: Any,
    ends: Any,
    full_s: Any,
    charged_s: Any,
    cols: Any,
    experts: Any,
    spent_s: float,  # this and the rest: see `Task`
    later_s: Any,
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
    """Price hard sets as far as the answer needs them; see `advance_probs`."""
    num_nodes = parents.size
    memory = Memory(
        state, is_left, column_of, expert_of, column_s, totals, newest, offsets, ids, is_read,
        starts, ends, full_s, charged_s, cols, experts,
    )  # fmt: skip
    fault = _fault_of(parents, path_probs, growth)
    if fault:
        return int(fault)
    bad = take_routing(routing, first, num_experts, memory)
    if bad >= 0:
        return BAD_VALUE - bad
    if first == 0:
        begin(expert_s, is_priced, memory)
    if state[ANY_PRICED] == 0:
        is_read[:num_nodes] = True
    counts[:] = 0
    wanted, likely = np.empty(num_nodes, np.int32), np.empty(num_nodes, np.bool_)
    if not is_read[0]:
        wanted[:] = 0
        wanted[0] = 1
        read_nodes(wanted, parents, expert_s, memory)
    if num_nodes > 1:
        _read_likely(
            parents, path_probs, spent_s, node_s, mode, price, HOPE_AGAIN if first else HOPE,
            expert_s, memory, likely, wanted,
        )  # fmt: skip
    rows, totals = _rows_so_far(memory, ones, num_nodes)
    full, charged, read = full_s[:num_nodes], charged_s[:num_nodes], is_read[:num_nodes]
    is_known = (first > 0 or num_nodes == 1) and _affine.is_still_best(
        parents, path_probs, spent_s, node_s, mode, price, rows, full, charged, start, mask, numbers
    )
    is_known = is_known and not _want(parents, mask, is_read, 1, wanted)
    counts[0] = int(is_known)
    reach = 1
    while not is_known:
        _affine.search_rows(
            parents, path_probs, spent_s, node_s, mode, price, rows, full, totals, likely, read,
            charged, mask, numbers, counts,
        )  # fmt: skip
        is_known = not _want(parents, mask, is_read, reach, wanted)
        if not is_known:
            read_nodes(wanted, parents, expert_s, memory)
            rows, totals = _rows_so_far(memory, ones, num_nodes)
            reach *= 2
    ahead = _look_ahead(
        parents, path_probs, later_s, node_s, mode, growth, expandable, numbers, rows,
        full, totals,
    )  # fmt: skip
    if ahead == 0 or read.all():
        return ahead
    read_all(num_nodes, parents, expert_s, memory)
    rows, totals = _rows_so_far(memory, ones, num_nodes)
    return _look_ahead(
        parents, path_probs, later_s, node_s, mode, growth, expandable, numbers, rows,
        full, totals,
    )  # fmt: skip


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
    hope: float,  # see HOPE
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
        seconds[node] = hope * full_s[node] + node_s
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
            seconds[node] = hope * full_s[node] + node_s
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
def _rows_so_far(memory: Memory, ones: Any, num_nodes: int) -> tuple[Rows, Any]:
    """Return the rows of all nodes, empty ones where they are not read, and the totals."""
    num_columns = memory.state[NUM_COLUMNS]
    rows = Rows(
        memory.starts[:num_nodes], memory.ends[:num_nodes], memory.cols, ones,
        memory.weight_s[:num_columns],
    )  # fmt: skip
    return rows, memory.totals[:num_columns]


@kernel
def _look_ahead(
    parents: Any,  # int32[N]
    path_probs: Any,  # float64[N]
    later_s: Any,  # this and the next five: see `Task`
    node_s: float,
    mode: int,
    growth: Any,
    expandable: Any,
    numbers: Any,
    rows: Rows,
    full_s: Any,
    totals: Any,
) -> int:
    """Return how many further levels win, 0 if none does."""
    ahead = growth.size
    if ahead == 0:
        return 0
    by_node = np.empty((parents.size, ahead))
    by_node[:] = growth
    bar = 0.0 if mode == _affine.RATIO else numbers[_sharing.BAR]
    return int(
        look_ahead_rows(
            parents, path_probs, expandable, by_node, later_s, node_s, numbers[_sharing.LAMBDA],
            bar, rows, full_s, totals, np.empty(ahead),
        )
    )  # fmt: skip
