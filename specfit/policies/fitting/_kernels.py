"""Numba kernels of the expert table's fit.

Calling convention: flat arrays in, sums added to arrays passed in; no validation. n nodes; L, E, K
as everywhere; S depth slots, B age buckets, R rows of the parent table.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from specfit.core._jit import kernel
from specfit.core.history import NEVER
from specfit.policies.log_odds import FIT_FLOOR, log_odds_of
from specfit.policies.predictors._kernels import bucket_of, scale_to_total


class Nodes(NamedTuple):
    """The nodes of a sample: base log odds, and what bends them."""

    base: NDArray[np.float32]  # [n, L, E]
    parent_rows: NDArray[np.int64]  # [n], of the model's effects
    slots: NDArray[np.int32]  # [n], of the model's ages
    buckets: NDArray[np.uint8]  # [T, L, E], of each expert's age before a token of the stream
    roots: NDArray[np.int64]  # [n], the token of the stream that is the root
    needed: NDArray[np.bool_]  # [n, L, E]


class Model(NamedTuple):
    """Parameters in log odds; the arrays are changed in place."""

    effects: NDArray[np.float64]  # [R, L, E]
    ages: NDArray[np.float64]  # [S, L, B]
    slopes: NDArray[np.float64]  # [2, L]


@kernel
def age_buckets(
    routing: NDArray[np.int16],
    texts: NDArray[np.int32],
    edges: NDArray[np.int64],
    out: NDArray[np.uint8],
) -> None:
    """Write into out [T, L, E] the age bucket of each expert before each token of the stream.

    routing [T, L, K] is the committed texts' one after another, texts [T] says whose each token is.
    """
    num_layers, num_experts = out.shape[1], out.shape[2]
    last = np.full((num_layers, num_experts), -1, np.int64)
    start = 0
    for t in range(len(routing)):
        if t == 0 or texts[t] != texts[t - 1]:
            last[:] = -1
            start = t
        for layer in range(num_layers):
            for expert in range(num_experts):
                seen = last[layer, expert]
                age = t - 1 - seen if seen >= 0 else NEVER + t - start
                out[t, layer, expert] = bucket_of(age, edges)
            for k in range(routing.shape[2]):
                last[layer, routing[t, layer, k]] = t


@kernel
def base_logits(
    counts: NDArray[np.float32],
    totals: NDArray[np.float32],
    unigram: NDArray[np.float64],
    kappas: NDArray[np.float64],
    tokens: NDArray[np.int64],
    needed: NDArray[np.bool_],
    leave_out: float,
    out: NDArray[np.float32],
) -> None:
    """Write into out [n, L, E] the log odds of each node's shrunk token frequencies.

    counts [V, L, E] and totals [V] are the tokens' counts, unigram [L, E] the back-off with weight
    kappas [L]. With leave_out = 1 a node's own routing, needed [n, L, E], is taken out first.
    """
    for i in range(len(tokens)):
        token = tokens[i]
        for layer in range(out.shape[1]):
            weight = totals[token] - leave_out + kappas[layer]
            for e in range(out.shape[2]):
                count = counts[token, layer, e] - leave_out * needed[i, layer, e]
                prob = (count + kappas[layer] * unigram[layer, e]) / weight
                out[i, layer, e] = log_odds_of(prob, FIT_FLOOR)


@kernel
def _probs_of(
    base: NDArray[np.float32],
    effects: NDArray[np.float64],
    age_logits: NDArray[np.float64],
    buckets: NDArray[np.uint8],
    slopes: NDArray[np.float64],
    total: float,
    odds: NDArray[np.float32],
    probs: NDArray[np.float32],
) -> None:
    """Write into probs [E] those of a node and layer, and into odds [E] what they are scaled from.

    base, effects and buckets are [E], age_logits is [B], slopes are the two of the layer.
    """
    for e in range(len(base)):
        logit = slopes[0] * base[e]
        logit += slopes[1] * effects[e]
        logit += age_logits[buckets[e]]
        odds[e] = np.exp(min(max(logit, -30.0), 30.0))
    scale_to_total(odds, np.float32(total), probs)


@kernel
def add_scores(nodes: Nodes, model: Model, total: float, sums: Model) -> float:
    """Add the log likelihood's derivatives at the current parameters; return minus its value.

    A node's log odds are slopes[0, l] base + slopes[1, l] effects[parent row] + ages[slot, bucket],
    then scaled to sum to `total`. The arrays of `sums` have one more axis in front, and gain the
    gradient at index 0 and the curvature at index 1.
    """
    base, needed, effects = nodes.base, nodes.needed, model.effects
    num_nodes, num_layers, num_experts = base.shape
    odds = np.empty(num_experts, np.float32)
    probs = np.empty(num_experts, np.float32)
    loss = 0.0
    for i in range(num_nodes):
        row, slot = nodes.parent_rows[i], nodes.slots[i]
        for layer in range(num_layers):
            bucket = nodes.buckets[nodes.roots[i], layer]
            _probs_of(
                base[i, layer], effects[row, layer], model.ages[slot, layer], bucket,
                model.slopes[:, layer], total, odds, probs,
            )  # fmt: skip
            for e in range(num_experts):
                prob = min(max(float(probs[e]), FIT_FLOOR), 1.0 - FIT_FLOOR)
                is_needed = needed[i, layer, e]
                miss = (1.0 if is_needed else 0.0) - prob
                curve = prob * (1.0 - prob)
                loss -= np.log(prob if is_needed else 1.0 - prob)
                effect, x = effects[row, layer, e], float(base[i, layer, e])
                sums.effects[0, row, layer, e] += miss
                sums.effects[1, row, layer, e] += curve
                sums.ages[0, slot, layer, bucket[e]] += miss
                sums.ages[1, slot, layer, bucket[e]] += curve
                sums.slopes[0, 0, layer] += miss * x
                sums.slopes[1, 0, layer] += curve * x * x
                sums.slopes[0, 1, layer] += miss * effect
                sums.slopes[1, 1, layer] += curve * effect * effect
    return loss


@kernel
def novelty_slope(
    nodes: Nodes,
    model: Model,
    total: float,
    depths: NDArray[np.int32],
    follows: NDArray[np.bool_],
    stream: NDArray[np.int16],
    novelty: float,
) -> float:
    """Return the derivative of the log likelihood by the novelty; the rest as `add_scores`.

    Only drafted nodes that follow the text count, and of their experts those that none of the nodes
    above needs: the rows of stream [T, L, K] from the root on.
    """
    base, roots = nodes.base, nodes.roots
    num_nodes, num_layers, num_experts = base.shape
    odds = np.empty(num_experts, np.float32)
    probs = np.empty(num_experts, np.float32)
    is_new = np.empty(num_experts, np.bool_)
    slope = 0.0
    for i in range(num_nodes):
        if depths[i] == 0 or not follows[i]:
            continue
        left, left_by = novelty ** depths[i], depths[i] * novelty ** (depths[i] - 1)
        for layer in range(num_layers):
            is_new[:] = True
            for place in range(roots[i], roots[i] + depths[i]):
                for k in range(stream.shape[2]):
                    is_new[stream[place, layer, k]] = False
            _probs_of(
                base[i, layer], model.effects[nodes.parent_rows[i], layer],
                model.ages[nodes.slots[i], layer], nodes.buckets[roots[i], layer],
                model.slopes[:, layer], total, odds, probs,
            )  # fmt: skip
            for e in range(num_experts):
                if is_new[e]:
                    given = probs[e] * (probs[e] + left * (1.0 - probs[e]))
                    given = min(max(given, FIT_FLOOR), 1.0 - FIT_FLOOR)
                    change = probs[e] * (1.0 - probs[e]) * left_by
                    slope += change / (given if nodes.needed[i, layer, e] else given - 1.0)
    return slope
