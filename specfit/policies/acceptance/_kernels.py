"""Numba kernels of the acceptance curves.

Calling convention: flat arrays in, results into an array passed in; no validation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specfit.core._jit import kernel
from specfit.policies.acceptance._repeats import LONGEST_RUN

NUM_FEATURES = 4
"""Constant, log q, log(1 - q), entropy in nats of the drafter's distribution at the parent."""

LOG_FLOOR = -20.0
"""Least logarithm that a feature takes: a probability of 2e-9, below which all count alike."""

NUM_LINES = 2 * LONGEST_RUN + 1
"""What a text can say of a node: nothing, or a run of 1 .. ``LONGEST_RUN`` for or against it."""


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
    log_prob = max(log_prob, LOG_FLOOR)
    out[0] = 1.0
    out[1] = log_prob
    out[2] = max(np.log(-np.expm1(min(log_prob, -1e-9))), LOG_FLOOR)
    out[3] = entropy


@kernel
def line_of(repeat: int) -> int:
    """Return the row of what a text says of a node: 0, then runs for it, then runs against it."""
    return repeat if repeat >= 0 else LONGEST_RUN - repeat


@kernel
def accept_probs(
    parents: NDArray[np.int32],
    log_probs: NDArray[np.float32],
    ranks: NDArray[np.int32],
    entropies: NDArray[np.float32],
    weights: NDArray[np.float64],
    repeats: NDArray[np.int8],
    lines: NDArray[np.float64],
    factor: float,
    out: NDArray[np.float64],
) -> None:
    """Write into out [N] the acceptance probability of each node from weights [D, R, 4].

    Its log odds z become ``a + b z``, (a, b) being the row of lines [NUM_LINES, 2] for what
    repeats [N] says, as `find_repeats` writes it. A node gets at most what its earlier siblings
    leave of 1. Then the odds that one of a node's children is accepted are multiplied by `factor`,
    of which each keeps its share.
    """
    num_nodes = len(parents)
    depths = np.zeros(num_nodes, np.int64)
    found = np.zeros(num_nodes)
    x = np.empty(NUM_FEATURES)
    out[0] = 1.0
    for node in range(1, num_nodes):
        parent = parents[node]
        depths[node] = depths[parent] + 1
        w = weights[min(depths[node], len(weights)) - 1, min(ranks[node], weights.shape[1] - 1)]
        features(log_probs[node], entropies[node], x)
        score = 0.0
        for f in range(NUM_FEATURES):
            score += w[f] * x[f]
        line = lines[line_of(repeats[node])]
        score = line[0] + line[1] * score
        out[node] = min(1.0 / (1.0 + np.exp(-score)), 1.0 - found[parent])
        found[parent] = min(found[parent] + out[node], 1.0)
    if factor != 1.0:
        for node in range(1, num_nodes):
            any_of_them = found[parents[node]]
            out[node] *= factor / (1.0 - any_of_them + factor * any_of_them)


@kernel
def surprise(
    parents: NDArray[np.int32],
    tokens: NDArray[np.int64],
    probs: NDArray[np.float64],
    nodes: NDArray[np.intp],
    targets: NDArray[np.int64],
    path: NDArray[np.intp],
) -> float:
    """Return the sum of (accepted - expected) over the nodes of `path` that have children.

    probs [N] : acceptance given the parent
    nodes, targets [n] : verified nodes, ascending, and the target's answers to them
    """
    num_nodes = len(parents)
    answers = np.full(num_nodes, -1)
    for node in path:
        answers[node] = targets[np.searchsorted(nodes, node)]
    total = 0.0
    for node in range(1, num_nodes):
        answer = answers[parents[node]]
        if answer >= 0:
            total += (1.0 if tokens[node] == answer else 0.0) - probs[node]
    return total
