"""What a pricer of hard sets keeps of each expert, column and node. Private.

All of it lies in one array of bytes, since to hand an array over to a kernel costs as much as some
hundred of its steps. `memory_of` cuts it into its parts.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from specfit.core._jit import kernel

STATE_SIZE = 4


class Memory(NamedTuple):
    """The memory's parts; see `_routing` for columns, rows and paths."""

    state: Any  # int64[4], see `_routing.NUM_COLUMNS`
    expert_of: Any  # int64[L*E+1], the inverse of `column_of`, filled up to the number of columns
    starts: Any  # int64[capacity]: row v lists the columns that node v adds,
    ends: Any  # int64[capacity], entries ``starts[v]`` to ``ends[v]``
    weight_s: Any  # float64[L*E+1], by column, filled up to the number of columns
    totals: Any  # float64[L*E], nodes that add it, by column; 0 beyond
    full_s: Any  # float64[capacity], seconds of the row if nobody shares
    charged_s: Any  # float64[capacity], what is charged: see `_affine.is_still_best`
    column_of: Any  # int32[L*E], -1 where no node read so far needs it
    newest: Any  # int32[L*E], the last node that adds it, by column; -1 beyond
    cols: Any  # int32[entries], enough for all nodes
    offsets: Any  # uint32[L*K], ``layer * E`` of each place of a node
    flat: Any  # uint32[L*K], scratch, as is the next
    found: Any  # uint32[L*K+1]
    ones: Any  # float32[entries], what a row adds to each of its columns
    ids: Any  # int16[capacity, L*K]
    is_left: Any  # uint8[L*E], 1 where an expert is priced and no node on the path needs it
    is_read: Any  # bool[capacity]


def split(whole: Any, num_experts: int, per_node: int, capacity: int) -> Memory:
    """Cut uint8[...] into parts, which are views, for ``L*E`` experts and ``L*K`` ids a node."""
    size, entries = num_experts, capacity * max(1, per_node) + 1
    a = 8 * (STATE_SIZE + size + 1 + 2 * capacity)
    b = a + 8 * (2 * size + 1 + 2 * capacity)
    c = b + 4 * (2 * size + entries)
    d = c + 4 * (3 * per_node + 1)
    e = d + 4 * entries
    f = e + 2 * capacity * per_node
    longs, doubles = whole[:a].view(np.int64), whole[a:b].view(np.float64)
    ints, places = whole[b:c].view(np.int32), whole[c:d].view(np.uint32)
    nodes, by_node = STATE_SIZE + size + 1, 2 * size + 1
    return Memory(
        longs[:STATE_SIZE],
        longs[STATE_SIZE:nodes],
        longs[nodes : nodes + capacity],
        longs[nodes + capacity :],
        doubles[: size + 1],
        doubles[size + 1 : by_node],
        doubles[by_node : by_node + capacity],
        doubles[by_node + capacity :],
        ints[:size],
        ints[size : 2 * size],
        ints[2 * size :],
        places[:per_node],
        places[per_node : 2 * per_node],
        places[2 * per_node :],
        whole[d:e].view(np.float32),
        whole[e:f].view(np.int16).reshape(capacity, per_node),
        whole[f : f + size],
        whole[f + size : f + size + capacity].view(np.bool_),
    )


memory_of = kernel(split)


def new_memory(shape: tuple[int, int], per_token: int, capacity: int) -> NDArray[np.uint8]:
    """Return memory for that many nodes of ``shape[0]`` layers, nothing known of any expert."""
    layers, experts = shape
    size, per_node = layers * experts, layers * per_token
    entries = capacity * max(1, per_node) + 1
    longs = STATE_SIZE + 3 * size + 2 + 4 * capacity
    num_bytes = 8 * longs + 4 * (2 * size + 2 * entries + 3 * per_node + 1)
    whole = np.zeros(num_bytes + 2 * capacity * per_node + size + capacity, np.uint8)
    memory = split(whole, size, per_node, capacity)
    memory.column_of[:] = memory.newest[:] = -1
    memory.offsets[:] = np.repeat(np.arange(layers) * experts, per_token)
    memory.ones[:] = 1.0
    return whole
