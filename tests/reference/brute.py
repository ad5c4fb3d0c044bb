"""Brute-force search: every selection of a small tree, costed from scratch. Slow and obvious."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Seconds = Callable[[Mask], float]
"""The time of a cycle that verifies a selection."""


def selections(parents: NDArray[np.int32], max_nodes: int | None = None) -> Iterator[Mask]:
    """Yield every selection: root included, closed under parent; fewer nodes first, then lower indices."""
    n = len(parents)
    found = []
    for bits in range(1 << (n - 1)):
        mask = np.array([True, *(bool(bits >> i & 1) for i in range(n - 1))])
        if not (mask[1:] & ~mask[parents[1:]]).any() and mask.sum() <= (max_nodes or n):
            found.append(mask)
    yield from sorted(found, key=lambda m: (m.sum(), tuple(np.flatnonzero(m))))


def path_conditional(parents: NDArray[np.int32], probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return r of the design, shape of `probs` [N, ...]: p times the product over ancestors of 1 - p."""
    demand = np.empty(probs.shape)
    for node in range(len(parents)):
        row = probs[node].astype(np.float64)
        ancestor = parents[node]
        while ancestor >= 0:
            row = row * (1.0 - probs[ancestor])
            ancestor = parents[ancestor]
        demand[node] = row
    return demand


def capped_seconds(
    rows: NDArray[np.float64],
    weight_s: NDArray[np.float64],
    draft_s: float,
    tau_s: NDArray[np.float64],
) -> Seconds:
    """Return T(S) = draft_s + tau_s[|S|] + sum of weight_s * min(1, sum of rows), rows float64[N, C]."""

    def seconds(mask: Mask) -> float:
        columns = weight_s * np.minimum(1.0, rows[mask].sum(axis=0))
        return float(draft_s + tau_s[mask.sum()] + columns.sum())

    return seconds


def best(
    parents: NDArray[np.int32],
    path_probs: NDArray[np.float64],
    seconds: Seconds,
    *,
    price: float | None = None,
    max_nodes: int | None = None,
) -> tuple[Mask, float]:
    """Return the first best selection and its objective: A / T, or A - price * T for a given price."""
    best_mask, best_value = None, -np.inf
    for mask in selections(parents, max_nodes):
        tokens, total_s = float(path_probs[mask].sum()), seconds(mask)
        value = tokens / total_s if price is None else tokens - price * total_s
        if value > best_value:
            best_mask, best_value = mask, value
    assert best_mask is not None
    return best_mask, best_value
