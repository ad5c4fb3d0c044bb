"""The exact step: one minimum cut over the nodes that no bound could decide. Private kernels.

The cut is the maximum-weight closure of the live nodes. A column that fits under its cap is part of
each node's own price and has no vertex. Columns that every owner fills alone (0/1 coverage) and
that have the same owners are one vertex.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from specfit.core._jit import kernel
from specfit.core.search._flow import Network, add_arc, new_network, saturate
from specfit.core.search._rows import Rows, root_load, rows_of

FITS, PARTIAL, FULL = 0, 1, 2


@kernel
def closure(
    parents: Any,  # int32[N]
    profits: Any,  # float64[N]
    node_s: float,
    live: Any,  # bool[N]
    price: float,
    margin: float,  # a branch is taken only if it gains more than this a node
    rows: Rows,
    base: Any,  # float64[C], the root's row
    load: Any,  # float64[C], sum of the rows of the live nodes
    taken: Any,  # bool[N], out: the smallest best selection
) -> None:
    """Find the closed set of live nodes, root included, with the most ``A - price * T``."""
    vertex = np.full(parents.size, -1, np.int64)
    num_vertices = 0
    for v in range(1, parents.size):
        if live[v]:
            vertex[v] = num_vertices
            num_vertices += 1
    taken[:] = False
    taken[0] = True
    if num_vertices == 0:
        return
    _, _, network = _build(
        parents, profits, node_s, vertex, num_vertices, price, margin, rows, base, load
    )
    source = network.arcs_at.size - 2
    side = saturate(network, source, source + 1)
    for v in range(1, parents.size):
        taken[v] = vertex[v] >= 0 and side[vertex[v]] >= 0


@kernel
def _build(
    parents: Any,
    profits: Any,
    node_s: float,
    vertex: Any,  # int64[N], -1 where not live
    num_vertices: int,
    price: float,
    margin: float,
    rows: Rows,
    base: Any,
    load: Any,
) -> tuple[Any, Any, Network]:
    """Return the kind and the group of each column, and the network of the live nodes.

    Its vertices are the live nodes, the groups of columns, the source and the sink.
    """
    kinds, num_entries = _classify(rows, vertex, base, load)
    group, num_groups = _merge(rows, vertex, num_vertices, kinds)
    source = num_vertices + num_groups
    network = new_network(source + 2, 2 * num_vertices + num_groups + num_entries)
    _connect_nodes(network, parents, profits, node_s, vertex, price, margin, rows, kinds, source)
    _connect_columns(network, vertex, num_vertices, price, rows, base, kinds, group, source + 1)
    return kinds, group, network


@kernel
def fair_shares(
    parents: Any,  # int32[N]
    profits: Any,  # float64[N]
    node_s: float,
    price: float,
    indptr: Any,
    cols: Any,
    vals: Any,
    weight_s: Any,
    totals: Any,  # float64[C], sum of all rows
    shares: Any,  # float64[N, C], out
) -> None:
    """Write what each node pays of each column's price, such that no closed set gains too much.

    The shares are a maximum flow of the full network. They never exceed ``price * weight_s * r_v``,
    nor add up to more than ``price * weight_s`` in a column.
    """
    rows = rows_of(indptr, cols, vals, weight_s)
    base = root_load(rows)
    vertex = np.arange(parents.size) - 1
    num_vertices = parents.size - 1
    kinds, group, network = _build(
        parents, profits, node_s, vertex, num_vertices, price, 0.0, rows, base, totals
    )
    source = network.arcs_at.size - 2
    saturate(network, source, source + 1)
    num_groups = source - num_vertices
    flows = np.zeros((parents.size, num_groups))
    for arc in range(0, network.num_arcs[0], 2):
        tail, head = network.head[arc + 1], network.head[arc]
        if tail < num_vertices and num_vertices <= head < source:
            flows[tail + 1, head - num_vertices] = network.room[arc + 1]
    group_s = np.zeros(num_groups)
    for c in range(kinds.size):
        if kinds[c] != FITS:
            group_s[group[c]] += weight_s[c] * (1.0 - base[c])
    shares[:] = 0.0
    for v in range(parents.size):
        first, count = _span(rows, v)
        for i in range(count):
            c = rows.cols[first + i] if rows.cols.size else i
            value = rows.vals[first + i]
            if v == 0 or kinds[c] == FITS:
                shares[v, c] = price * weight_s[c] * value
            elif value > 0.0 and group_s[group[c]] > 0.0:
                part = weight_s[c] * (1.0 - base[c]) / group_s[group[c]]
                shares[v, c] = flows[v, group[c]] * part


@kernel
def _span(rows: Rows, node: int) -> tuple[int, int]:
    """Return the first entry and the number of entries of a row."""
    if rows.cols.size == 0:
        return node * rows.weight_s.size, rows.weight_s.size
    return rows.starts[node], rows.ends[node] - rows.starts[node]


@kernel
def _classify(rows: Rows, vertex: Any, base: Any, load: Any) -> tuple[Any, int]:
    """Return the kind of each column, int8[C], and the number of entries that need an arc."""
    kinds = np.zeros(rows.weight_s.size, np.int8)
    for c in range(kinds.size):
        if load[c] > 1.0 and rows.weight_s[c] > 0.0:
            kinds[c] = FULL
    num_entries = 0
    for v in range(vertex.size):
        if vertex[v] < 0:
            continue
        first, count = _span(rows, v)
        for i in range(count):
            c = rows.cols[first + i] if rows.cols.size else i
            value = rows.vals[first + i]
            if value > 0.0 and kinds[c] != FITS:
                num_entries += 1
                if value < 1.0 - base[c]:
                    kinds[c] = PARTIAL
    return kinds, num_entries


@kernel
def _merge(rows: Rows, vertex: Any, num_vertices: int, kinds: Any) -> tuple[Any, int]:
    """Return the group of each binding column, int32[C], and the number of groups.

    Full columns with the same owners share a group; a partial column is a group of its own.
    """
    group = np.full(kinds.size, -1, np.int32)
    num_full = 0
    for c in range(kinds.size):
        if kinds[c] == FULL:
            group[c] = num_full
            num_full += 1
    owners = np.zeros((num_full, (num_vertices + 63) // 64), np.uint64)
    for v in range(vertex.size):
        if vertex[v] < 0:
            continue
        word, bit = vertex[v] >> 6, np.uint64(1) << np.uint64(vertex[v] & 63)
        first, count = _span(rows, v)
        for i in range(count):
            c = rows.cols[first + i] if rows.cols.size else i
            if kinds[c] == FULL and rows.vals[first + i] > 0.0:
                owners[group[c], word] |= bit
    of_full, num_groups = _same_rows(owners)
    for c in range(kinds.size):
        if kinds[c] == FULL:
            group[c] = of_full[group[c]]
        elif kinds[c] == PARTIAL:
            group[c] = num_groups
            num_groups += 1
    return group, num_groups


@kernel
def _same_rows(keys: Any) -> tuple[Any, int]:
    """Give equal rows of uint64[n, words], and only them, one number; return it and how many."""
    numbers = np.empty(keys.shape[0], np.int32)
    table_size = 2
    while table_size < 2 * keys.shape[0]:
        table_size *= 2
    table = np.full(table_size, -1, np.int64)
    num_distinct = 0
    for i in range(keys.shape[0]):
        mixed = np.uint64(0)
        for word in range(keys.shape[1]):
            mixed ^= keys[i, word]
            mixed ^= mixed << np.uint64(13)
            mixed ^= mixed >> np.uint64(7)
            mixed ^= mixed << np.uint64(17)
        slot = np.int64((mixed ^ (mixed >> np.uint64(32))) & np.uint64(table_size - 1))
        while table[slot] >= 0 and not _equal(keys, table[slot], i):
            slot = (slot + 1) & (table_size - 1)
        if table[slot] < 0:
            table[slot] = i
            numbers[i] = num_distinct
            num_distinct += 1
        else:
            numbers[i] = numbers[table[slot]]
    return numbers, num_distinct


@kernel
def _equal(keys: Any, i: int, j: int) -> bool:
    for word in range(keys.shape[1]):
        if keys[i, word] != keys[j, word]:
            return False
    return True


@kernel
def _connect_nodes(
    network: Network,
    parents: Any,
    profits: Any,
    node_s: float,
    vertex: Any,
    price: float,
    margin: float,
    rows: Rows,
    kinds: Any,
    source: int,
) -> None:
    """Add an arc for each node's own gain or loss, and one from each node to its parent."""
    for v in range(vertex.size):
        if vertex[v] < 0:
            continue
        seconds = node_s
        first, count = _span(rows, v)
        for i in range(count):
            c = rows.cols[first + i] if rows.cols.size else i
            if kinds[c] == FITS:
                seconds += rows.weight_s[c] * rows.vals[first + i]
        gain = profits[v] - price * seconds - margin
        if gain > 0.0:
            add_arc(network, source, vertex[v], gain)
        elif gain < 0.0:
            add_arc(network, vertex[v], source + 1, -gain)
        if parents[v] > 0:
            add_arc(network, vertex[v], vertex[parents[v]], np.inf)


@kernel
def _connect_columns(
    network: Network,
    vertex: Any,
    num_vertices: int,
    price: float,
    rows: Rows,
    base: Any,
    kinds: Any,
    group: Any,
    sink: int,
) -> None:
    """Add an arc from each owner to its groups of binding columns, and from those to the sink."""
    num_groups = sink - 1 - num_vertices
    costs = np.zeros(num_groups)
    last_owner = np.full(num_groups, -1, np.int64)
    for c in range(kinds.size):
        if kinds[c] != FITS:
            costs[group[c]] += price * rows.weight_s[c] * (1.0 - base[c])
    for v in range(vertex.size):
        if vertex[v] < 0:
            continue
        first, count = _span(rows, v)
        for i in range(count):
            c = rows.cols[first + i] if rows.cols.size else i
            value = rows.vals[first + i]
            if kinds[c] == FITS or value <= 0.0 or last_owner[group[c]] == v:
                continue
            last_owner[group[c]] = v
            room = np.inf if kinds[c] == FULL else price * rows.weight_s[c] * value
            add_arc(network, vertex[v], num_vertices + group[c], room)
    for g in range(num_groups):
        add_arc(network, num_vertices + g, sink, costs[g])
