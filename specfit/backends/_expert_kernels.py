"""The experts of a layer for few tokens on a CPU, compiled: one call where torch needs dozens.

Calling convention: float32 arrays, blocks as the checkpoint packs them (rows are outputs), results
passed in; nothing is checked. T tokens, K experts a token, D hidden size, I expert width, B block
size. A pair is (token, place in its top-k), numbered ``token * K + place``; what a pair gives does
not depend on the other pairs of the call.
"""

from __future__ import annotations

import math

import numba
import numpy as np

from specfit.backends._head_kernels import FASTMATH


@numba.njit(cache=True, nogil=True)
def group_pairs(routing, order, counts):
    """Write the pairs of routing [T, K], grouped by expert, to order [T * K]; counts [E] by expert.

    Pairs of an expert keep their order.
    """
    pair_experts = routing.reshape(-1)
    counts[:] = 0
    for expert in pair_experts:
        counts[expert] += 1
    starts = np.cumsum(counts) - counts
    for pair in range(len(pair_experts)):
        expert = pair_experts[pair]
        order[starts[expert]] = pair
        starts[expert] += 1


@numba.njit(cache=True, nogil=True, fastmath=FASTMATH)
def run_expert(x, block, width, inner, out):
    """Write one expert's output for x [D] to out [D]; block [B] holds gate, up and down.

    inner : scratch, float32[I]
    """
    size = len(x)
    gates = block[: width * size].reshape(width, size)
    ups = block[width * size : 2 * width * size].reshape(width, size)
    downs = block[2 * width * size :].reshape(size, width)
    for i in range(width):
        gate, up = dot(gates[i], x), dot(ups[i], x)
        inner[i] = gate / (np.float32(1) + np.float32(math.exp(-gate))) * up
    for i in range(size):
        out[i] = dot(downs[i], inner)


@numba.njit(cache=True, nogil=True, fastmath=FASTMATH)
def dot(a, b):
    """Return the sum of the products of two vectors."""
    total = np.float32(0)
    for j in range(len(a)):
        total += a[j] * b[j]
    return total


@numba.njit(cache=True, nogil=True)
def run_wave(hidden, order, routing, slot_of, pool, width, outputs):
    """Write the outputs of the wave's pairs to their rows of outputs [T * K, D].

    hidden : [T, D]
    order : int64[T * K], pairs grouped by expert, so that a block is read once
    routing : int64[T, K]
    slot_of : int64[E], where in pool [S, B] each expert is; negative if it is in another wave
    """
    pair_experts, per_token = routing.reshape(-1), routing.shape[1]
    inner = np.empty(width, np.float32)
    for pair in order:
        slot = slot_of[pair_experts[pair]]
        if slot >= 0:
            run_expert(hidden[pair // per_token], pool[slot], width, inner, outputs[pair])


@numba.njit(cache=True, nogil=True)
def sum_pairs(outputs, weights, out):
    """Write each token's pairs, times weights [T, K] and in top-k order, to out [T, D]."""
    num_tokens, per_token = weights.shape
    for token in range(num_tokens):
        out[token] = 0
        for place in range(per_token):
            weight, row = weights[token, place], outputs[token * per_token + place]
            for j in range(out.shape[1]):
                out[token, j] += weight * row[j]
