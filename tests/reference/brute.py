"""Brute-force search: every selection of a small tree, costed from scratch. Slow and obvious."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Mask = NDArray[np.bool_]
Seconds = Callable[[Mask], float]
"""The time of a cycle that verifies a selection."""


def selections(parents: NDArray[np.int32], max_nodes: int | None = None) -> Iterator[Mask]:
    """Yield every selection, closed under parent; fewer nodes first, then lower indices."""
    n = len(parents)
    for size in range(max_nodes or n):
        for nodes in combinations(range(1, n), size):
            if all(parents[v] == 0 or parents[v] in nodes for v in nodes):
                mask = np.zeros(n, bool)
                mask[[0, *nodes]] = True
                yield mask


def path_conditional(parents: NDArray[np.int32], probs: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return p times the product over ancestors of 1 - p, the shape of `probs`, [N, ...]."""
    demand = np.empty(probs.shape)
    for node in range(len(parents)):
        row = probs[node].astype(np.float64)
        ancestor = parents[node]
        while ancestor >= 0:
            row = row * (1.0 - probs[ancestor])
            ancestor = parents[ancestor]
        demand[node] = row
    return demand


def best(
    parents: NDArray[np.int32],
    path_probs: NDArray[np.float64],
    seconds: Seconds,
    *,
    price: float | None = None,
    max_nodes: int | None = None,
) -> tuple[Mask, float]:
    """Return the first best selection and its objective: A / T, or A - price * T at a price."""
    best_mask, best_value = np.zeros(len(parents), bool), -np.inf
    for mask in selections(parents, max_nodes):
        tokens, total_s = float(path_probs[mask].sum()), seconds(mask)
        value = tokens / total_s if price is None else tokens - price * total_s
        if value > best_value:
            best_mask, best_value = mask, value
    return best_mask, best_value
