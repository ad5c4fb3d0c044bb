"""Maximum flow by Dinic's method on flat arrays. Private kernels.

Convention. Arc a runs ``from head[a ^ 1] to head[a]`` with residual capacity ``room[a]``; arcs a
and ``a ^ 1`` are each other's reverse. ``arcs_at[u]`` starts the list of u's arcs, ``next_arc``
links it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from specfit.core._jit import kernel


class Network(NamedTuple):
    """A flow network that is filled by `add_arc`."""

    arcs_at: Any  # int32[vertices], -1 where none
    next_arc: Any  # int32[arcs]
    head: Any  # int32[arcs]
    room: Any  # float64[arcs]
    num_arcs: Any  # int64[1]


@kernel
def new_network(num_vertices: int, max_arcs: int) -> Network:
    """Return a network without arcs that has room for `max_arcs`, reverse arcs not counted."""
    return Network(
        np.full(num_vertices, -1, np.int32),
        np.empty(2 * max_arcs, np.int32),
        np.empty(2 * max_arcs, np.int32),
        np.empty(2 * max_arcs, np.float64),
        np.zeros(1, np.int64),
    )


@kernel
def add_arc(network: Network, tail: int, head: int, capacity: float) -> None:
    """Add an arc and its reverse, which starts with no capacity."""
    arc = network.num_arcs[0]
    network.head[arc] = head
    network.room[arc] = capacity
    network.next_arc[arc] = network.arcs_at[tail]
    network.arcs_at[tail] = arc
    network.head[arc + 1] = tail
    network.room[arc + 1] = 0.0
    network.next_arc[arc + 1] = network.arcs_at[head]
    network.arcs_at[head] = arc + 1
    network.num_arcs[0] = arc + 2


@kernel
def saturate(network: Network, source: int, sink: int) -> Any:
    """Push a maximum flow; return int32[vertices], >= 0 on the smallest source side of a cut."""
    levels = np.empty(network.arcs_at.size, np.int32)
    queue = np.empty(network.arcs_at.size, np.int32)
    current = np.empty(network.arcs_at.size, np.int32)
    path = np.empty(network.arcs_at.size, np.int32)
    while _find_levels(network, source, sink, levels, queue):
        current[:] = network.arcs_at
        _block_flow(network, source, sink, levels, current, path)
    return levels


@kernel
def _find_levels(network: Network, source: int, sink: int, levels: Any, queue: Any) -> bool:
    levels[:] = -1
    levels[source] = 0
    queue[0] = source
    first, last = 0, 1
    while first < last:
        u = queue[first]
        first += 1
        arc = network.arcs_at[u]
        while arc >= 0:
            w = network.head[arc]
            if levels[w] < 0 and network.room[arc] > 0.0:
                levels[w] = levels[u] + 1
                queue[last] = w
                last += 1
            arc = network.next_arc[arc]
    return bool(levels[sink] >= 0)


@kernel
def _block_flow(
    network: Network, source: int, sink: int, levels: Any, current: Any, path: Any
) -> None:
    """Push a blocking flow along the level graph; `path` is the stack of arcs from the source."""
    depth = 0
    u = source
    while True:
        if u == sink:
            depth = _push(network, path, depth)
            u = network.head[path[depth] ^ 1]
            continue
        arc = current[u]
        while arc >= 0 and not (
            network.room[arc] > 0.0 and levels[network.head[arc]] == levels[u] + 1
        ):
            arc = network.next_arc[arc]
        current[u] = arc
        if arc >= 0:
            path[depth] = arc
            depth += 1
            u = network.head[arc]
        elif u == source:
            return
        else:
            levels[u] = -1
            depth -= 1
            u = network.head[path[depth] ^ 1]


@kernel
def _push(network: Network, path: Any, depth: int) -> int:
    """Push what the path holds; return the position of its first arc that is now full."""
    amount = np.inf
    tightest = 0
    for i in range(depth):
        if network.room[path[i]] < amount:
            amount = network.room[path[i]]
            tightest = i
    for i in range(depth):
        network.room[path[i]] -= amount
        network.room[path[i] ^ 1] += amount
    return tightest
