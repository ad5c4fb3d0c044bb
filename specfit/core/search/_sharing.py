"""Ways to share the cost of columns among nodes: what each is charged. Private kernels.

A charge is sound if those of any selection never exceed what its columns cost; the affine search
bounds and prunes by them. Scratch arrays are passed in.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from specfit.core._jit import kernel
from specfit.core.search._rows import (
    UNSHARED,
    Rows,
    charges,
    charges_by_worth,
    load_of,
    share_units,
    take_out,
    worth_of,
)


class Task(NamedTuple):
    """One affine problem: ``T(S) = fixed_s + node_s * |S| + capped columns``."""

    parents: Any  # int32[N]
    profits: Any  # float64[N]
    fixed_s: float
    node_s: float
    rows: Rows
    base: Any  # float64[C]
    mode: int


class Best(NamedTuple):
    """The best selection so far; numbers sit in ``values`` at the positions below."""

    mask: Any  # bool[N]
    values: Any  # float64[4]


TOKENS, SECONDS, LAMBDA, BAR = 0, 1, 2, 3
"""A and T of the best selection, the price in force, and the gain A - price * T to beat."""
ROUNDS, CUTS = 4, 5
"""Where the work done is noted behind them."""


@kernel
def charge_evenly(task: Task, full_s: Any, live: Any, load: Any, unit: Any, seconds: Any) -> None:
    """Write what each live node costs when all live nodes share the columns."""
    if share_units(task.rows.weight_s, task.base, load, unit):
        charges(task.rows, live, unit, seconds)
    else:
        seconds[:] = full_s
    seconds += task.node_s
    seconds[0] = task.fixed_s + task.node_s + full_s[0]


@kernel
def charge_by_worth(task: Task, full_s: Any, live: Any, load: Any, unit: Any, seconds: Any) -> None:
    """Write what each live node costs when those worth more tokens pay more of the columns."""
    weight_s, base = task.rows.weight_s, task.base
    worth_of(task.rows, live, task.profits, unit)
    for c in range(weight_s.size):
        is_over = load[c] > 1.0 and unit[c] > 0.0
        unit[c] = weight_s[c] * (1.0 - base[c]) / unit[c] if is_over else UNSHARED
    charges_by_worth(task.rows, live, weight_s, unit, task.profits, seconds)
    seconds += task.node_s
    seconds[0] = task.fixed_s + task.node_s + full_s[0]


@kernel
def charge_best_first(
    task: Task,
    best: Best,
    full_s: Any,
    live: Any,
    load: Any,
    unit: Any,
    first: Any,  # float64[C], scratch
    group: Any,  # bool[N], scratch
    seconds: Any,
) -> None:
    """Write what each live node costs when the best selection pays first, the others the rest."""
    weight_s = task.rows.weight_s
    for v in range(live.size):
        group[v] = live[v] and best.mask[v]
    group[0] = True
    load_of(task.rows, group, first)
    share_units(weight_s, task.base, first, unit)
    charges(task.rows, group, unit, seconds)
    for c in range(weight_s.size):
        room = max(0.0, 1.0 - first[c])
        others = load[c] - first[c]
        unit[c] = weight_s[c] if others <= room else weight_s[c] * room / others
    for v in range(live.size):
        group[v] = live[v] and not best.mask[v]
    charges(task.rows, group, unit, seconds)
    seconds += task.node_s
    seconds[0] = task.fixed_s + task.node_s + full_s[0]


@kernel
def unload(task: Task, live: Any, summed: Any, load: Any) -> None:
    """Take the rows of the dropped nodes out of `load`, afresh or by subtraction.

    Whichever reads fewer rows; `summed` says whose rows are in it.
    """
    num_live, num_summed = 0, 0
    for v in range(live.size):
        num_live += live[v]
        num_summed += summed[v]
    if 2 * num_live < num_summed:
        load_of(task.rows, live, load)
    elif num_live < num_summed:
        take_out(task.rows, summed, live, load)
    summed[:] = live


@kernel
def keep_charges(task: Task, live: Any, seconds: Any, load: Any, charged_s: Any) -> None:
    """Write what a proof charges each node for experts: of any selection, at most their cost.

    A column that no live node needs is charged to the first of the others that does. `load`,
    float64[C], is scratch.
    """
    rows = task.rows
    load_of(rows, live, load)
    for v in range(live.size):
        if live[v]:
            charged_s[v] = seconds[v] - task.node_s
            continue
        charged_s[v] = 0.0
        for entry in range(rows.starts[v], rows.ends[v]):
            c = np.uint32(rows.cols[np.uint64(entry)])
            if load[c] == 0.0:
                load[c] = 1.0
                charged_s[v] += rows.weight_s[c]
