"""Rows of the demand matrix: how much of each expert each node adds. Private kernels.

Convention. Row v lists what node v adds to its columns, ``r_v(c)``. Two layouts, one meaning:

* sparse: entries ``starts[v]`` to ``ends[v]``, columns in ``cols``, values in ``vals``;
* dense: ``cols`` is empty and row v is ``vals[v * C : (v + 1) * C]``, C columns.

Column c costs ``weight_s[c] * min(1, load[c])`` seconds, where ``load`` is the sum of the rows of
the selected nodes. The root's row is `base`; it is always selected.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from specfit.core._jit import kernel

LANES = 64
"""Partial sums of a dense product: fixed, so that additions have one order everywhere."""


class Rows(NamedTuple):
    """The demand matrix as kernels see it; see the module's convention."""

    starts: Any  # int64[N]; empty when dense
    ends: Any  # int64[N]; empty when dense
    cols: Any  # int32[entries]; empty when dense
    vals: Any  # float32[entries] or float32[N*C]
    weight_s: Any  # float64[C]


@kernel
def rows_of(indptr: Any, cols: Any, vals: Any, weight_s: Any) -> Rows:
    """Return rows that lie one after the other, int64[N+1], or dense ones, int64[0]."""
    return Rows(indptr[:-1], indptr[1:], cols, vals, weight_s)


@kernel
def add_row(rows: Rows, node: int, load: Any, sign: float) -> None:
    """Add `sign` times row `node` to `load`, float64[C]."""
    num_columns = rows.weight_s.size
    if rows.cols.size == 0:
        row = rows.vals[node * num_columns : (node + 1) * num_columns]
        for c in range(row.size):
            load[c] += sign * row[c]
    else:
        for i in range(rows.starts[node], rows.ends[node]):
            load[rows.cols[i]] += sign * rows.vals[i]


@kernel
def charge(rows: Rows, node: int, unit: Any, lanes: Any) -> float:
    """Return the sum over columns of ``r_node(c) * unit[c]``; `lanes` is float64[LANES] scratch."""
    num_columns = rows.weight_s.size
    if rows.cols.size == 0:
        row = rows.vals[node * num_columns : (node + 1) * num_columns]
        lanes[:] = 0.0
        whole = row.size // LANES * LANES
        for i in range(0, whole, LANES):
            for j in range(LANES):
                lanes[j] += row[i + j] * unit[i + j]
        for i in range(whole, row.size):
            lanes[i - whole] += row[i] * unit[i]
        return _sum_of(lanes)
    total = 0.0
    for i in range(rows.starts[node], rows.ends[node]):
        total += rows.vals[i] * unit[rows.cols[i]]
    return total


@kernel
def _sum_of(lanes: Any) -> float:
    """Return the sum of float64[LANES]; four sums at a time, since one would wait for itself."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for j in range(0, LANES, 4):
        a += lanes[j]
        b += lanes[j + 1]
        c += lanes[j + 2]
        d += lanes[j + 3]
    return (a + b) + (c + d)


@kernel
def load_of(rows: Rows, chosen: Any, load: Any) -> None:
    """Write the sum of the rows of the `chosen` nodes, bool[N], to `load`, float64[C]."""
    load[:] = 0.0
    if rows.cols.size == 0:
        for node in range(chosen.size):
            if chosen[node]:
                add_row(rows, node, load, 1.0)
        return
    cols, vals = rows.cols, rows.vals
    for node in range(chosen.size):
        if chosen[node]:
            for entry in range(rows.starts[node], rows.ends[node]):
                i = np.uint64(entry)
                load[np.uint32(cols[i])] += vals[i]


@kernel
def take_out(rows: Rows, summed: Any, live: Any, load: Any) -> None:
    """Take the rows of the nodes that are `summed` but not `live`, bool[N], out of `load`."""
    cols, vals = rows.cols, rows.vals
    for node in range(live.size):
        if live[node] or not summed[node]:
            continue
        if cols.size == 0:
            add_row(rows, node, load, -1.0)
            continue
        for entry in range(rows.starts[node], rows.ends[node]):
            i = np.uint64(entry)
            load[np.uint32(cols[i])] -= vals[i]


@kernel
def worth_of(rows: Rows, chosen: Any, worths: Any, load: Any) -> None:
    """Write the sum of ``worths[v]`` times row v, over the `chosen` nodes but the root, to `load`.

    `worths` is float64[N].
    """
    load[:] = 0.0
    cols, vals = rows.cols, rows.vals
    for node in range(1, chosen.size):
        if chosen[node]:
            worth = worths[node]
            if cols.size == 0:
                row = vals[node * load.size : (node + 1) * load.size]
                for c in range(row.size):
                    load[c] += worth * row[c]
                continue
            for entry in range(rows.starts[node], rows.ends[node]):
                i = np.uint64(entry)
                load[np.uint32(cols[i])] += worth * vals[i]


@kernel
def charges(rows: Rows, chosen: Any, unit: Any, out: Any) -> None:
    """Write `charge` of each of the `chosen` nodes but the root to `out`, float64[N].

    One call for all rows: each call costs as much as some twenty entries.
    """
    cols, vals = rows.cols, rows.vals
    if cols.size == 0:
        lanes = np.empty(LANES)
        for node in range(1, chosen.size):
            if chosen[node]:
                out[node] = charge(rows, node, unit, lanes)
        return
    for node in range(1, chosen.size):
        if not chosen[node]:
            continue
        a, b = 0.0, 0.0  # one sum would wait for itself
        first, end = rows.starts[node], rows.ends[node]
        for entry in range(first, end - 1, 2):
            i, j = np.uint64(entry), np.uint64(entry + 1)
            a += vals[i] * unit[np.uint32(cols[i])]
            b += vals[j] * unit[np.uint32(cols[j])]
        if (end - first) & 1:
            i = np.uint64(end - 1)
            a += vals[i] * unit[np.uint32(cols[i])]
        out[node] = a + b


UNSHARED = 1e300
"""Charge for a unit of worth where a column is under its cap: whoever needs it pays in full."""


@kernel
def charges_by_worth(rows: Rows, chosen: Any, most: Any, unit: Any, worths: Any, out: Any) -> None:
    """Write the sum over columns of ``r_v(c) * min(most[c], worths[v] * unit[c])`` to `out`.

    Of each of the `chosen` nodes but the root.
    """
    cols, vals = rows.cols, rows.vals
    if cols.size == 0:
        lanes = np.empty(LANES)
        for node in range(1, chosen.size):
            if chosen[node]:
                out[node] = _dense_by_worth(rows, node, most, unit, worths[node], lanes)
        return
    for node in range(1, chosen.size):
        if not chosen[node]:
            continue
        worth = worths[node]
        a, b = 0.0, 0.0
        first, end = rows.starts[node], rows.ends[node]
        for entry in range(first, end - 1, 2):
            i, j = np.uint64(entry), np.uint64(entry + 1)
            c, d = np.uint32(cols[i]), np.uint32(cols[j])
            a += vals[i] * min(most[c], worth * unit[c])
            b += vals[j] * min(most[d], worth * unit[d])
        if (end - first) & 1:
            i = np.uint64(end - 1)
            c = np.uint32(cols[i])
            a += vals[i] * min(most[c], worth * unit[c])
        out[node] = a + b


@kernel
def _dense_by_worth(rows: Rows, node: int, most: Any, unit: Any, worth: float, lanes: Any) -> float:
    """Return what a row of the dense layout is charged; `lanes` is float64[LANES] scratch."""
    num_columns = rows.weight_s.size
    row = rows.vals[node * num_columns : (node + 1) * num_columns]
    lanes[:] = 0.0
    whole = row.size // LANES * LANES
    for i in range(0, whole, LANES):
        for j in range(LANES):
            lanes[j] += row[i + j] * min(most[i + j], worth * unit[i + j])
    for i in range(whole, row.size):
        lanes[i - whole] += row[i] * min(most[i], worth * unit[i])
    return _sum_of(lanes)


@kernel
def capped_seconds(weight_s: Any, load: Any) -> float:
    """Return the seconds of all columns, the sum of ``weight_s * min(1, load)``."""
    whole = weight_s.size // 4 * 4
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    for i in range(0, whole, 4):
        a += weight_s[i] * min(1.0, load[i])
        b += weight_s[i + 1] * min(1.0, load[i + 1])
        c += weight_s[i + 2] * min(1.0, load[i + 2])
        d += weight_s[i + 3] * min(1.0, load[i + 3])
    for i in range(whole, weight_s.size):
        a += weight_s[i] * min(1.0, load[i])
    return (a + b) + (c + d)


@kernel
def any_binds(totals: Any) -> bool:
    """Return whether any column's load, float64[C], is over its cap."""
    for c in range(totals.size):
        if totals[c] > 1.0:
            return True
    return False


@kernel
def share_units(weight_s: Any, base: Any, load: Any, unit: Any) -> bool:
    """Write the seconds that one unit of each column is charged when all of `load` shares its cost.

    A column whose load fits under its cap charges full weight. One over its cap charges
    ``weight_s * (1 - base) / (load - base)``: whoever is selected, the charges of the selected
    nodes then never exceed what the column costs beyond the root's part.

    Returns whether any column is over its cap.
    """
    binds = False
    for c in range(weight_s.size):
        if load[c] > 1.0:
            binds = True
            unit[c] = weight_s[c] * (1.0 - base[c]) / (load[c] - base[c])
        else:
            unit[c] = weight_s[c]
    return binds


@kernel
def root_load(rows: Rows) -> Any:
    """Return what the root alone adds to each column, float64[C]."""
    base = np.zeros(rows.weight_s.size)
    add_row(rows, 0, base, 1.0)
    return base


@kernel
def shared_seconds(rows: Rows, full_s: Any, totals: Any, out: Any) -> None:
    """Write what each row costs, float64[N], when all nodes share every column evenly."""
    base = root_load(rows)
    unit = np.empty(totals.size)
    out[:] = full_s
    if share_units(rows.weight_s, base, totals, unit):
        charges(rows, np.ones(out.size, np.bool_), unit, out)


@kernel
def all_share(
    indptr: Any, cols: Any, vals: Any, weight_s: Any, full_s: Any, totals: Any, out: Any
) -> None:
    """See `shared_seconds`; takes the demand matrix as separate arrays."""
    shared_seconds(rows_of(indptr, cols, vals, weight_s), full_s, totals, out)


@kernel
def expected_use(
    rows_at: Any,  # int64[n], selected nodes
    factors: Any,  # float32[N], the part of each row that is charged
    experts: Any,  # int64[C], flat id of each column
    is_counted: Any,  # bool[L*E]
    indptr: Any,
    cols: Any,
    vals: Any,
    weight_s: Any,
) -> tuple[float, float, float]:
    """Return the expected number of counted experts in use, their seconds, and the others'."""
    load = np.zeros(weight_s.size)
    rows = rows_of(indptr, cols, vals, weight_s)
    for node in rows_at:
        add_row(rows, node, load, 1.0 / max(factors[node], 1e-30))
    count, counted_s, other_s = 0.0, 0.0, 0.0
    for c in range(load.size):
        used = min(1.0, load[c])
        if is_counted[experts[c]]:
            count += used
            counted_s += used * weight_s[c]
        else:
            other_s += used * weight_s[c]
    return count, counted_s, other_s
