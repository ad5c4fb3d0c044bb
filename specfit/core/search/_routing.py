"""Rows of hard sets: the experts of each node that no node on its path needs already. Private.

Convention. Experts have flat ids ``layer * E + expert``. Columns are numbered as experts turn up.
A node whose ids are here but not read yet has an empty row: its experts cost nothing. That is a
relaxation, so most nodes are never read; see `_level._search_lazily`. A node is read after its
parent, in any order besides, since rows know where they start and end.

What the path to one node leaves is kept in one table that stays in the nearest memory; from one
path to another only the rows between them are written.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specfit.core._jit import kernel
from specfit.core.search._memory import Memory

NUM_COLUMNS, NUM_ENTRIES, PATH, ANY_PRICED = 0, 1, 2, 3
"""Columns and entries so far, the node whose path `is_left` is of, 1 if any expert is priced."""


@kernel
def take_routing(routing: Any, first: int, num_experts: int, memory: Memory) -> int:
    """Keep the ids of the new nodes, int16[n, L, K], from node `first` on, none of them read.

    Returns -1, or the first flat entry that is no expert id; then nothing has changed.
    """
    source = routing.reshape(-1)
    target = memory.ids.reshape(-1)[first * memory.offsets.size :]
    if not _copy_experts(source, target, num_experts):
        for i in range(source.size):
            if source[i] < 0 or source[i] >= num_experts:
                return i
    for node in range(first, first + routing.shape[0]):
        memory.is_read[node] = False
        memory.starts[node] = 0
        memory.ends[node] = 0
        memory.full_s[node] = 0.0
        memory.charged_s[node] = 0.0
    return -1


@kernel
def _copy_experts(source: Any, target: Any, num_experts: int) -> bool:
    """Copy int16[entries]; return whether all are expert ids. A negative one reads as a large."""
    largest = np.uint16(0)
    for i in range(source.size):
        largest = max(largest, np.uint16(source[i]))
        target[i] = source[i]
    return bool(largest < num_experts or source.size == 0)


@kernel
def begin(expert_s: Any, memory: Memory) -> None:
    """Forget all columns and rows; the experts of ``expert_s > 0``, float64[L*E], are priced."""
    is_left, any_priced = memory.is_left, np.uint8(0)
    for expert in range(is_left.size):
        is_priced = np.uint8(expert_s[expert] > 0.0)
        is_left[expert] = is_priced
        any_priced |= is_priced
    _forget(any_priced, memory)


@kernel
def begin_with(is_priced: Any, memory: Memory) -> None:
    """See `begin`; the experts in `is_priced`, bool[L*E], are priced."""
    for expert in range(is_priced.size):
        memory.is_left[expert] = np.uint8(is_priced[expert])
    _forget(is_priced.any(), memory)


@kernel
def _forget(any_priced: Any, memory: Memory) -> None:
    """Forget all columns and rows, and note whether any expert is priced."""
    num_columns = memory.state[NUM_COLUMNS]
    memory.column_of[:] = -1
    memory.totals[:num_columns] = 0.0
    memory.newest[:num_columns] = -1
    memory.state[NUM_COLUMNS] = 0
    memory.state[NUM_ENTRIES] = 0
    memory.state[PATH] = -1
    memory.state[ANY_PRICED] = any_priced


@kernel
def read_nodes(wanted: Any, parents: Any, expert_s: Any, memory: Memory) -> None:
    """Append the row of each `wanted` node, int[N]; its parent is read, or wanted too."""
    flat, found = memory.flat, memory.found
    for node in range(wanted.size):
        if wanted[node] == 0:
            continue
        memory.is_read[node] = True
        _walk(parents, parents[node], memory)
        count = _list_left(memory.ids[node], memory.offsets, memory.is_left, flat, found)
        _add_row(found, count, node, expert_s, memory)


@kernel
def read_all(num_nodes: int, parents: Any, expert_s: Any, memory: Memory) -> None:
    """Append the rows of all nodes that are not read."""
    wanted = np.empty(num_nodes, np.uint8)
    for node in range(num_nodes):
        wanted[node] = np.uint8(not memory.is_read[node])
    read_nodes(wanted, parents, expert_s, memory)


@kernel
def _walk(parents: Any, node: int, memory: Memory) -> None:
    """Make `is_left` that of the path to `node`, -1 for none."""
    path, above = memory.state[PATH], node
    memory.state[PATH] = node
    while path != above:
        if path > above:
            _mark(path, memory, np.uint8(1))
            path = parents[path]
        else:
            above = parents[above]
    while node != path:
        _mark(node, memory, np.uint8(0))
        node = parents[node]


@kernel
def _mark(node: int, memory: Memory, value: Any) -> None:
    """Set `is_left` of the experts of a row."""
    for i in range(np.uint64(memory.starts[node]), np.uint64(memory.ends[node])):
        expert = memory.expert_of[np.uint32(memory.cols[i])]
        memory.is_left[np.uint32(expert)] = value


@kernel
def _list_left(ids: Any, offsets: Any, is_left: Any, flat: Any, found: Any) -> Any:
    """List in `found` the flat ids of one node's experts that its path leaves; return how many.

    Whether one is left is a coin toss, which a processor guesses badly: so there is no branch but
    one for each four ids, of which mostly none is left where most experts are resident.
    """
    per_node = offsets.size
    for place in range(per_node):
        flat[place] = np.uint32(np.uint16(ids[place])) + offsets[place]
    count = np.uint32(0)
    whole = per_node // 4 * 4
    for first in range(0, whole, 4):
        i = np.uint64(first)
        a, b = flat[i], flat[i + np.uint64(1)]
        c, d = flat[i + np.uint64(2)], flat[i + np.uint64(3)]
        if is_left[a] | is_left[b] | is_left[c] | is_left[d]:
            for expert in (a, b, c, d):
                found[count] = expert
                count += np.uint32(is_left[expert])
    for place in range(whole, per_node):
        found[count] = flat[place]
        count += np.uint32(is_left[flat[place]])
    return np.int64(count)


@kernel
def _add_row(found: Any, count: int, node: int, expert_s: Any, memory: Memory) -> None:
    """Write the row of `node`, the first `count` experts of `found`, each once."""
    column_of, expert_of, weight_s = memory.column_of, memory.expert_of, memory.weight_s
    totals, newest, cols = memory.totals, memory.newest, memory.cols
    seconds, first_s = 0.0, 0.0  # of all its columns, and of those that it is the first to need
    next_column = np.uint32(memory.state[NUM_COLUMNS])
    end = np.uint32(memory.state[NUM_ENTRIES])
    memory.starts[node] = end
    for j in range(count):
        expert = found[j]
        expert_weight_s = expert_s[expert]
        known = np.int64(column_of[expert])
        is_new = np.int64(known < 0)
        column = np.uint32(known + is_new * (next_column + 1))  # `known` or, for -1, the next
        column_of[expert] = column
        expert_of[next_column] = expert
        weight_s[next_column] = expert_weight_s
        next_column += np.uint32(is_new)
        first_s += is_new * expert_weight_s
        cols[end] = column
        if newest[column] != node:
            newest[column] = node
            totals[column] += 1.0
            seconds += expert_weight_s
            end += np.uint32(1)
    memory.state[NUM_COLUMNS] = next_column
    memory.state[NUM_ENTRIES] = end
    memory.ends[node] = end
    memory.full_s[node] = seconds
    memory.charged_s[node] = first_s
