"""Rows of hard sets: the experts of each node that no node on its path needs already. Private.

Convention. Experts have flat ids ``layer * E + expert``. ``first`` is the index of the first new
node; what belongs to earlier nodes is there already. Columns are numbered as experts turn up.

What the path to one parent leaves is kept in one table that stays in the nearest memory; it is
written anew when the parent changes. Functions take whole arrays and offsets: a slice costs as much
as twenty experts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from specfit.core._jit import kernel


class Columns(NamedTuple):
    """The experts seen so far, and what each is by column."""

    column_of: Any  # int32[L*E], -1 where no node needed it yet
    expert_of: Any  # int64[L*E+1], the inverse, filled up to the number of columns
    weight_s: Any  # float64[L*E], by column, likewise
    totals: Any  # float64[L*E], nodes that add it, by column; 0 beyond
    worths: Any  # float64[L*E], the sum of their path probabilities, less the root's; 0 beyond
    newest: Any  # int32[L*E], the last of those nodes, by column; -1 beyond


class SparseRows(NamedTuple):
    """Row v lists the columns that node v adds: entries ``indptr[v]`` to ``indptr[v + 1]``."""

    indptr: Any  # int64[capacity+1]
    cols: Any  # int32[enough]
    full_s: Any  # float64[capacity], seconds of the row if nobody shares


@kernel
def price_routing(
    routing: Any,  # int16[n, L, K]
    parents: Any,  # int32[>= first+n]
    path_probs: Any,  # float64[>= first+n]
    first: int,
    num_columns: int,  # so far; of the cycle before where `first` is 0
    num_experts: int,
    expert_s: Any,  # float64[L*E], weight by flat id
    is_priced: Any,  # bool[L*E], or bool[0]: where the weight is above 0
    priced: Any,  # uint8[L*E], 1 where an expert is priced; written where `first` is 0
    is_left: Any,  # uint8[L*E], scratch: 1 where one is priced and no node on the path needs it
    column_of: Any,  # this and the next five: see `Columns`
    expert_of: Any,
    weight_s: Any,
    totals: Any,
    worths: Any,
    newest: Any,
    indptr: Any,  # this and the next two: see `SparseRows`
    cols: Any,
    full_s: Any,
) -> Any:
    """Append one sparse row a new node.

    Returns the number of columns so far, or ``-1 - i`` when flat entry i is no expert id; an i
    beyond the last entry stands for `parents` that are no tree's.
    """
    ids = routing.reshape(-1)
    if not _are_before(parents, first + routing.shape[0]):
        return -1 - ids.size
    if not _all_experts(ids, num_experts):
        for i in range(ids.size):
            if ids[i] < 0 or ids[i] >= num_experts:
                return -1 - i
    columns = Columns(column_of, expert_of, weight_s, totals, worths, newest)
    rows = SparseRows(indptr, cols, full_s)
    if first == 0:
        _begin(expert_s, is_priced, num_columns, columns, priced)
        num_columns = 0
    per_token = routing.shape[2]
    per_node = routing.shape[1] * per_token
    found = np.empty(per_node + 1, np.uint32)
    _copy(priced, is_left)
    path = -1
    for i in range(routing.shape[0]):
        node = first + i
        if parents[node] != path:
            _walk(parents, path, parents[node], columns, rows, priced, is_left)
            path = parents[node]
        count = _list_new(
            ids, i * per_node, (i + 1) * per_node, per_token, num_experts, is_left, found
        )
        worth = path_probs[node] if node > 0 else 0.0
        num_columns = _add_row(found, count, node, worth, expert_s, columns, num_columns, rows)
    return num_columns


@kernel
def _copy(source: Any, target: Any) -> None:
    """Copy uint8[n]. A loop of its own becomes wide moves; an assignment of slices does not."""
    for i in range(source.size):
        target[i] = source[i]


@kernel
def _begin(expert_s: Any, is_priced: Any, num_columns: int, columns: Columns, priced: Any) -> None:
    """Take the columns of the cycle before back from their experts, and note who is priced."""
    for column in range(num_columns):
        columns.column_of[columns.expert_of[column]] = -1
        columns.totals[column] = 0.0
        columns.worths[column] = 0.0
        columns.newest[column] = -1
    if is_priced.size:
        for expert in range(priced.size):
            priced[expert] = np.uint8(is_priced[expert])
    else:
        for expert in range(priced.size):
            priced[expert] = np.uint8(expert_s[expert] > 0.0)


@kernel
def _are_before(parents: Any, num_nodes: int) -> bool:
    """Return whether the parent of each of the first nodes comes before it, the root's being -1."""
    for node in range(num_nodes):
        if parents[node] >= node or (parents[node] < 0) != (node == 0):
            return False
    return num_nodes == 0 or parents[0] == -1


@kernel
def _all_experts(ids: Any, num_experts: int) -> bool:
    """Return whether all of int16[entries] are expert ids; a negative one reads as a large one."""
    largest = np.uint16(0)
    for i in range(ids.size):
        largest = max(largest, np.uint16(ids[i]))
    return bool(largest < num_experts or ids.size == 0)


@kernel
def _walk(
    parents: Any,
    path: int,
    node: int,
    columns: Columns,
    rows: SparseRows,
    priced: Any,
    is_left: Any,
) -> None:
    """Turn `is_left` of the path to node `path`, -1 for none, into that of the path to `node`."""
    above = node
    while above > path:
        above = parents[above]
    if above != path:
        _copy(priced, is_left)
        path = -1
    while node != path:
        _clear(node, columns, rows, is_left)
        node = parents[node]


@kernel
def _clear(node: int, columns: Columns, rows: SparseRows, table: Any) -> None:
    """Set the experts of a row to 0 in uint8[L*E]."""
    for i in range(np.uint64(rows.indptr[node]), np.uint64(rows.indptr[node + 1])):
        table[np.uint64(columns.expert_of[np.uint32(rows.cols[i])])] = np.uint8(0)


@kernel
def _list_new(
    ids: Any, start: int, end: int, per_token: int, num_experts: int, is_left: Any, found: Any
) -> Any:
    """List in `found` the flat ids of one node's experts that its path leaves; return how many.

    Whether one is left is a coin toss, which a processor guesses badly: so there is no branch.
    """
    count = np.uint32(0)
    entry = np.uint32(start)
    for layer in range((end - start) // per_token):
        offset = np.uint32(layer * num_experts)
        for _ in range(per_token):
            expert = offset + np.uint32(np.uint16(ids[entry]))
            found[count] = expert
            count += np.uint32(is_left[expert])
            entry += np.uint32(1)
    return np.int64(count)


@kernel
def _add_row(
    found: Any,
    count: int,
    node: int,
    worth: float,
    expert_s: Any,
    columns: Columns,
    num_columns: int,
    rows: SparseRows,
) -> Any:
    """Write the row of `node`, the first `count` experts of `found`, each once.

    Returns the number of columns so far.
    """
    seconds = 0.0
    next_column = np.uint32(num_columns)
    end = np.uint32(rows.indptr[node])
    for j in range(count):
        expert = found[j]
        known = np.int64(columns.column_of[expert])
        is_new = np.int64(known < 0)
        column = np.uint32(known + is_new * (next_column + 1))  # `known` or, for -1, the next
        columns.column_of[expert] = column
        columns.expert_of[next_column] = expert
        next_column += np.uint32(is_new)
        rows.cols[end] = column
        if columns.newest[column] != node:
            columns.newest[column] = node
            columns.totals[column] += 1.0
            columns.worths[column] += worth
            seconds += expert_s[expert]
            end += np.uint32(1)
    for new in range(num_columns, next_column):
        columns.weight_s[new] = expert_s[columns.expert_of[new]]
    rows.indptr[node + 1] = end
    rows.full_s[node] = seconds
    return np.int64(next_column)
