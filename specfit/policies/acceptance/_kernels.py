"""Numba kernels of the acceptance curves.

Calling convention: flat arrays in, results into an array passed in; no validation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specfit.core._jit import kernel

NUM_FEATURES = 4
"""Constant, log q, log(1 - q), entropy in nats of the drafter's distribution at the parent."""

_LOG_FLOOR = -20.0


@kernel
def write_features(
    log_probs: NDArray[np.float32], entropies: NDArray[np.float32], out: NDArray[np.float64]
) -> None:
    """Write the features of n nodes into out [n, 4]."""
    for node in range(len(log_probs)):
        features(log_probs[node], entropies[node], out[node])


@kernel
def features(log_prob: float, entropy: float, out: NDArray[np.float64]) -> None:
    """Write the features of a node into out [4]."""
    log_prob = max(log_prob, _LOG_FLOOR)
    out[0] = 1.0
    out[1] = log_prob
    out[2] = max(np.log(-np.expm1(min(log_prob, -1e-9))), _LOG_FLOOR)
    out[3] = entropy


@kernel
def accept_probs(
    parents: NDArray[np.int32],
    log_probs: NDArray[np.float32],
    ranks: NDArray[np.int32],
    entropies: NDArray[np.float32],
    weights: NDArray[np.float64],
    shift: float,
    out: NDArray[np.float64],
) -> None:
    """Write into out [N] the acceptance probability of each node from weights [D, R, 4].

    The log odds of nodes of rank 0 are moved by `shift`.
    A node gets at most what its earlier siblings leave of 1: no value depends on a later node.
    """
    num_nodes = len(parents)
    depths = np.zeros(num_nodes, np.int64)
    left = np.ones(num_nodes)
    x = np.empty(NUM_FEATURES)
    out[0] = 1.0
    for node in range(1, num_nodes):
        parent = parents[node]
        depths[node] = depths[parent] + 1
        w = weights[min(depths[node], len(weights)) - 1, min(ranks[node], weights.shape[1] - 1)]
        features(log_probs[node], entropies[node], x)
        score = shift if ranks[node] == 0 else 0.0
        for f in range(NUM_FEATURES):
            score += w[f] * x[f]
        out[node] = min(1.0 / (1.0 + np.exp(-score)), left[parent])
        left[parent] = max(left[parent] - out[node], 0.0)
