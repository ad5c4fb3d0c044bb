"""Best closed subtree when every node has its own price: the tree pass behind every bound.

Convention. Node v brings ``profits[v]`` expected tokens and costs ``seconds[v]``; node 0 is always
taken. ``live`` marks the nodes still in question (with a node, its parent is live). Private
kernels.
"""

from __future__ import annotations

from typing import Any

from specfit.core._jit import kernel

OPEN, IN, OUT = 0, 1, 2
"""What a subproblem says of a node: undecided, surely selected, surely not."""


@kernel
def best_subtree(
    parents: Any,  # int32[N]
    profits: Any,  # float64[N]
    seconds: Any,  # float64[N]
    live: Any,  # bool[N]
    price: float,
    margin: float,  # a branch is taken only if it gains more than this
    gains: Any,  # float64[N], out: best gain of the branch that starts at each node
    taken: Any,  # bool[N], out: the smallest best subtree
) -> float:
    """Return the most that a closed subtree with node 0 gains, in tokens."""
    for v in range(parents.size):
        if live[v]:
            gains[v] = profits[v] - price * seconds[v]
    for v in range(parents.size - 1, 0, -1):
        if live[v] and gains[v] > margin:
            gains[parents[v]] += gains[v]
    taken[0] = True
    for v in range(1, parents.size):
        taken[v] = live[v] and gains[v] > margin and taken[parents[v]]
    return float(gains[0])


@kernel
def drop_hopeless(parents: Any, gains: Any, live: Any, through: Any, bar: float) -> int:
    """Remove from `live` each node through which no closed subtree gains more than `bar`.

    ``through[v]``, float64[N] scratch, is the best gain of a closed subtree that contains v.
    Returns how many nodes were removed.
    """
    num_dropped = 0
    through[0] = gains[0]
    for v in range(1, parents.size):
        if not live[v]:
            continue
        through[v] = through[parents[v]] + min(0.0, gains[v])
        if not live[parents[v]] or through[v] <= bar:
            live[v] = False
            num_dropped += 1
    return num_dropped


@kernel
def best_ratio(
    parents: Any,
    profits: Any,
    seconds: Any,
    live: Any,
    price: float,
    gains: Any,
    taken: Any,
) -> float:
    """Return the best tokens per second of a closed subtree, from a lower bound `price`.

    Dinkelbach's iteration; `taken` holds the subtree that attains it.
    """
    while True:
        best_subtree(parents, profits, seconds, live, price, 0.0, gains, taken)
        tokens = 0.0
        total_s = 0.0
        for v in range(parents.size):
            if taken[v]:
                tokens += profits[v]
                total_s += seconds[v]
        rate = tokens / total_s
        if not rate > price:
            return price
        price = rate


@kernel
def decide(
    parents: Any,  # int32[N]
    worths: Any,  # float64[N], gain of each node alone
    toll: float,  # what each node costs besides
    constant: float,
    bar: float,
    state: Any,  # int8[N], in and out: OPEN, IN or OUT
    branch: Any,  # float64[N], scratch: best gain of the branch at each node
    through: Any,  # float64[N], scratch: best gain with the node, then what it loses without
) -> bool:
    """Put OUT each open node that no selection above `bar` has, IN each that all of them have.

    Returns whether any node was decided.
    """
    for v in range(parents.size):
        branch[v] = worths[v] - toll
    for v in range(parents.size - 1, 0, -1):
        if state[v] == IN or (state[v] == OPEN and branch[v] > 0.0):
            branch[parents[v]] += branch[v]
    changed = False
    total = branch[0] - constant
    through[0] = total
    for v in range(1, parents.size):
        if state[v] == OUT:
            continue
        through[v] = through[parents[v]]
        if state[v] == OPEN:
            through[v] += min(0.0, branch[v])
            if state[parents[v]] == OUT or through[v] <= bar:
                state[v] = OUT
                changed = True
    loss = through
    loss[0] = total
    for v in range(1, parents.size):
        if state[v] == IN:
            loss[v] = total
        elif state[v] == OPEN:
            above = max(0.0, branch[v])
            loss[v] = above if state[parents[v]] == IN else min(above, loss[parents[v]])
            if total - loss[v] <= bar:
                state[v] = IN
                changed = True
    return changed
