"""The draft head for few rows on a CPU, compiled: one call where torch needs fifty.

Calling convention: float32 arrays, projections with inputs as rows, results passed in; nothing is
checked. P pairs, D hidden size, d head width, T rows of keys and values before the call. Sums may
be reordered (`fastmath`), so results differ from torch's in the last bits; a draft may.
"""

from __future__ import annotations

import math

import numba
import numpy as np

FASTMATH = {"contract", "reassoc", "nsz", "arcp"}
HIDDEN = np.float32(-1e30)


@numba.njit(cache=True, nogil=True, fastmath=FASTMATH)
def matmul(x, weight, out):
    """Write x [P, n] @ weight [n, m] to out [P, m]; n is a multiple of 4."""
    rows, inner = x.shape
    columns = weight.shape[1]
    out[:] = 0
    for j in range(0, inner, 4):
        for i in range(rows):
            a, b, c, d = x[i, j], x[i, j + 1], x[i, j + 2], x[i, j + 3]
            for k in range(columns):
                out[i, k] += (a * weight[j, k] + b * weight[j + 1, k]) + (
                    c * weight[j + 2, k] + d * weight[j + 3, k]
                )


@numba.njit(cache=True, nogil=True, fastmath=FASTMATH)
def rms_norm(x, weight, eps, out):
    """Write the RMS norm of x [P, D] to out."""
    rows, width = x.shape
    for i in range(rows):
        total = np.float32(0)
        for j in range(width):
            total += x[i, j] * x[i, j]
        scale = np.float32(1 / math.sqrt(total / width + eps))
        for j in range(width):
            out[i, j] = x[i, j] * scale * weight[j]


@numba.njit(cache=True, nogil=True, fastmath=FASTMATH)
def rotate(heads, num_rotated, cos, sin):
    """Rotate the first heads of [P, H, d] in place; cos and sin [P or 1, d] by row."""
    rows, _, width = heads.shape
    half = width // 2
    for i in range(rows):
        place = min(i, len(cos) - 1)
        for h in range(num_rotated):
            for j in range(half):
                low, high = heads[i, h, j], heads[i, h, half + j]
                heads[i, h, j] = low * cos[place, j] - high * sin[place, j]
                heads[i, h, half + j] = high * cos[place, j] + low * sin[place, j]


@numba.njit(cache=True, nogil=True, fastmath=FASTMATH)
def attend(heads, num_heads, keys, values, num_rows, mask, out):
    """Write the attention of queries heads[:, :num_heads] to out [P, num_heads * d].

    keys, values [kv heads, rows, d], the first `num_rows` of them in use; mask bool[P, num_rows].
    """
    count, _, width = heads.shape
    group = num_heads // len(keys)
    scale = np.float32(1 / math.sqrt(width))
    weights = np.empty(num_rows, np.float32)
    out[:] = 0
    for i in range(count):
        for h in range(num_heads):
            key, value = keys[h // group], values[h // group]
            best = HIDDEN
            for r in range(num_rows):
                score = np.float32(0)
                for j in range(width):
                    score += heads[i, h, j] * key[r, j]
                weights[r] = score * scale if mask[i, r] else HIDDEN
                best = max(best, weights[r])
            total = np.float32(0)
            for r in range(num_rows):
                weights[r] = math.exp(weights[r] - best)
                total += weights[r]
            for r in range(num_rows):
                share = weights[r] / total
                for j in range(width):
                    out[i, h * width + j] += share * value[r, j]


@numba.njit(cache=True, nogil=True, fastmath=FASTMATH)
def gated(gate_up, out):
    """Write silu(gate) * up to out [P, n], from their columns side by side [P, 2 n]."""
    rows, width = out.shape
    for i in range(rows):
        for j in range(width):
            gate = gate_up[i, j]
            out[i, j] = gate / (1 + np.float32(math.exp(-gate))) * gate_up[i, width + j]


@numba.njit(cache=True, nogil=True, fastmath=FASTMATH)
def run_layer(
    embedded,
    hidden,
    norms,
    projections,
    num_heads,
    rope,
    keys,
    values,
    num_rows,
    mask,
    options,
    out,
):
    """Append a row of keys and values a pair and write the new hidden states to out [P, D].

    norms : of the embedding, the hidden state, and before the MLP, float32[3, D]
    projections : query-key-value, attention output, gate-up, down
    rope : cos and sin, each [P or 1, d]
    num_rows : rows before the call
    mask : bool[P, num_rows + P]
    options : (eps, whether the residual is the normed hidden state)
    """
    count, size = hidden.shape
    qkv, output, gate_up, down = projections
    num_kv_heads, _, width = keys.shape
    eps, norm_before_residual = options
    inputs = np.empty((count, 2 * size), np.float32)
    rms_norm(embedded, norms[0], eps, inputs[:, :size])
    rms_norm(hidden, norms[1], eps, inputs[:, size:])
    flat = np.empty((count, qkv.shape[1]), np.float32)
    matmul(inputs, qkv, flat)
    heads = flat.reshape(count, qkv.shape[1] // width, width)
    rotate(heads, num_heads + num_kv_heads, rope[0], rope[1])
    for i in range(count):
        for h in range(num_kv_heads):
            keys[h, num_rows + i] = heads[i, num_heads + h]
            values[h, num_rows + i] = heads[i, num_heads + num_kv_heads + h]
    attended = np.empty((count, num_heads * width), np.float32)
    attend(heads, num_heads, keys, values, num_rows + count, mask, attended)
    state = np.empty((count, size), np.float32)
    matmul(attended, output, state)
    state += inputs[:, size:] if norm_before_residual else hidden
    normed = np.empty((count, size), np.float32)
    rms_norm(state, norms[2], eps, normed)
    wide = np.empty((count, gate_up.shape[1]), np.float32)
    matmul(normed, gate_up, wide)
    inner = np.empty((count, gate_up.shape[1] // 2), np.float32)
    gated(wide, inner)
    matmul(inner, down, out)
    out += state


@numba.njit(cache=True, nogil=True, fastmath=FASTMATH)
def run_children(hidden, norm, eps, lm_head, ids, log_probs, entropies):
    """Write the best draft ids of each row, with log probability, and the row's entropy.

    ids, log_probs : [P, k], the most probable first, the lower id on ties; k at most Vd
    entropies : [P]
    """
    count, size = hidden.shape
    top_k = ids.shape[1]
    normed = np.empty((count, size), np.float32)
    rms_norm(hidden, norm, eps, normed)
    logits = np.empty((count, lm_head.shape[1]), np.float32)
    matmul(normed, lm_head, logits)
    for i in range(count):
        row = logits[i]
        best = row.max()
        total, moment = np.float32(0), np.float32(0)
        for j in range(len(row)):
            row[j] -= best
            share = np.float32(math.exp(row[j]))
            total += share
            moment += share * row[j]
        log_total = np.float32(math.log(total))
        entropies[i] = log_total - moment / total
        for rank in range(top_k):
            found = 0
            for j in range(1, len(row)):
                if row[j] > row[found]:
                    found = j
            ids[i, rank] = found
            log_probs[i, rank] = min(row[found] - log_total, np.float32(0))
            row[found] = -np.inf
