"""Rows of hard sets: the experts of each node that no node on its path needs already. Private.

Convention. Experts have flat ids ``layer * E + expert``. ``first`` is the index of the first new
node; what belongs to earlier nodes is there already. Columns are numbered as experts turn up.

What a path leaves is written only for nodes that have children, when the first of them comes.
Functions take whole arrays and offsets: a slice costs as much as twenty experts.
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
    newest: Any  # int32[L*E], the last of those nodes, by column; -1 beyond


class Paths(NamedTuple):
    """What the path from the root to node v leaves to pay, in row v + 1; row 0 is no path."""

    is_known: Any  # bool[capacity+1], whether a row of `is_left` is written
    is_left: Any  # uint8[capacity+1, L*E], 1 where an expert is priced and no node needs it


class SparseRows(NamedTuple):
    """Row v lists the columns that node v adds: entries ``indptr[v]`` to ``indptr[v + 1]``."""

    indptr: Any  # int64[capacity+1]
    cols: Any  # int32[enough]
    full_s: Any  # float64[capacity], seconds of the row if nobody shares


@kernel
def price_routing(
    routing: Any,  # int16[n, L, K]
    parents: Any,  # int32[>= first+n]
    first: int,
    expert_s: Any,  # float64[L*E], weight by flat id
    num_experts: int,
    paths: Paths,
    columns: Columns,
    num_columns: int,
    rows: SparseRows,
) -> Any:
    """Append one sparse row a new node.

    Returns the number of columns so far, or ``-1 - i`` when flat entry i is no expert id.
    """
    ids = routing.reshape(-1)
    if not _all_experts(ids, num_experts):
        for i in range(ids.size):
            if ids[i] < 0 or ids[i] >= num_experts:
                return -1 - i
    per_token = routing.shape[2]
    per_node = routing.shape[1] * per_token
    found = np.empty(per_node + 1, np.uint32)
    for i in range(routing.shape[0]):
        node = first + i
        path = parents[node] + 1
        paths.is_known[node + 1] = False
        if not paths.is_known[path]:
            _walk(parents, parents[node], columns, paths, rows)
        count = _list_new(
            ids, i * per_node, (i + 1) * per_node, per_token, num_experts, paths.is_left, path,
            found,
        )  # fmt: skip
        num_columns = _add_row(found, count, node, expert_s, columns, num_columns, rows)
    return num_columns


@kernel
def _all_experts(ids: Any, num_experts: int) -> bool:
    """Return whether all of int16[entries] are expert ids; a negative one reads as a large one."""
    largest = np.uint16(0)
    for i in range(ids.size):
        largest = max(largest, np.uint16(ids[i]))
    return bool(largest < num_experts or ids.size == 0)


@kernel
def _walk(parents: Any, node: int, columns: Columns, paths: Paths, rows: SparseRows) -> None:
    """Write what the path to `node`, itself included, leaves; that of its parent is written."""
    row, before = node + 1, parents[node] + 1
    for expert in range(paths.is_left.shape[1]):
        paths.is_left[row, expert] = paths.is_left[before, expert]
    for i in range(rows.indptr[node], rows.indptr[node + 1]):
        paths.is_left[row, columns.expert_of[rows.cols[i]]] = np.uint8(0)
    paths.is_known[row] = True


@kernel
def _list_new(
    ids: Any,
    start: int,
    end: int,
    per_token: int,
    num_experts: int,
    is_left: Any,
    path: int,
    found: Any,
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
            count += np.uint32(is_left[path, expert])
            entry += np.uint32(1)
    return np.int64(count)


@kernel
def _add_row(
    found: Any,
    count: int,
    node: int,
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
        known = columns.column_of[expert]
        column = next_column if known < 0 else np.uint32(known)
        columns.column_of[expert] = column
        columns.expert_of[next_column] = expert
        next_column += np.uint32(known < 0)
        rows.cols[end] = column
        if columns.newest[column] != node:
            columns.newest[column] = node
            columns.totals[column] += 1.0
            seconds += expert_s[expert]
            end += np.uint32(1)
    for new in range(num_columns, next_column):
        columns.weight_s[new] = expert_s[columns.expert_of[new]]
    rows.indptr[node + 1] = end
    rows.full_s[node] = seconds
    return np.int64(next_column)


@kernel
def begin(
    weight_s: Any,  # float64[L*E]
    num_columns: int,  # of the cycle before
    columns: Columns,
    expert_s: Any,  # float64[L*E], out
    is_left: Any,  # uint8[capacity+1, L*E], row 0 is written: whether an expert costs time
) -> None:
    """Take the columns back from their experts, and note what each expert costs."""
    for column in range(num_columns):
        columns.column_of[columns.expert_of[column]] = -1
        columns.totals[column] = 0.0
        columns.newest[column] = -1
    for expert in range(weight_s.size):
        expert_s[expert] = weight_s[expert]
        is_left[0, expert] = np.uint8(weight_s[expert] > 0.0)
