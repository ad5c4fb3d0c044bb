"""Numba kernels of the token table.

Calling convention: flat arrays and scalars in, results into arrays passed in; no validation. Sums
are taken in interleaved parts, which is fast and has one order on every machine.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specfit.core._jit import kernel

_NEAR = 256
"""Ages below this are looked up."""
_MAX_STEPS = 40
_MAX_LOG_STEP = 3.0
_LAST_LOG_STEP = 0.15


@kernel
def table_probs(
    codes: NDArray[np.uint8],
    odds_of_code: NDArray[np.float32],
    row_of_token: NDArray[np.int32],
    parent_codes: NDArray[np.uint8],
    odds_of_parent_code: NDArray[np.float32],
    parent_row_of_token: NDArray[np.int32],
    age_edges: NDArray[np.int64],
    age_odds: NDArray[np.float32],
    tokens: NDArray[np.int64],
    parent_tokens: NDArray[np.int64],
    depths: NDArray[np.int32],
    ages: NDArray[np.int64],
    total: float,
    layers: NDArray[np.intp],
    out: NDArray[np.float32],
) -> None:
    """Write into out [n, l, E] the probabilities of n nodes in l layers: see `ExpertTable`.

    A negative parent token stands for row 0.
    """
    num_slots, num_experts = len(age_odds), out.shape[2]
    buckets = _buckets(ages, age_edges, layers)
    by_age = np.empty(buckets.shape, np.float32)
    known = -1
    odds = np.empty(num_experts, np.float32)
    for i in range(len(tokens)):
        slot = min(depths[i], num_slots - 1)
        if slot != known:
            _odds_by_bucket(buckets, age_odds[slot], layers, by_age)
            known = slot
        row = row_of_token[tokens[i]]
        parent_row = parent_row_of_token[parent_tokens[i]] if parent_tokens[i] >= 0 else 0
        for place, layer in enumerate(layers):
            code, parent_code = codes[row, layer], parent_codes[parent_row, layer]
            factor = by_age[place]
            for e in range(num_experts):
                odds[e] = odds_of_code[code[e]] * odds_of_parent_code[parent_code[e]] * factor[e]
            scale_to_total(odds, np.float32(total), out[i, place])


@kernel
def _buckets(
    ages: NDArray[np.int64], edges: NDArray[np.int64], layers: NDArray[np.intp]
) -> NDArray[np.uint8]:
    """Return the bucket of each age [L, E] in l layers, [l, E]; the smallest are looked up."""
    near = np.empty(_NEAR, np.uint8)
    for age in range(_NEAR):
        near[age] = bucket_of(age, edges)
    far, of_far = -1, 0
    found = np.empty((len(layers), ages.shape[1]), np.uint8)
    for place, layer in enumerate(layers):
        for expert in range(ages.shape[1]):
            age = ages[layer, expert]
            if age < _NEAR:
                found[place, expert] = near[age]
                continue
            if age != far:
                far, of_far = age, bucket_of(age, edges)
            found[place, expert] = of_far
    return found


@kernel
def _odds_by_bucket(
    buckets: NDArray[np.uint8],
    odds: NDArray[np.float32],
    layers: NDArray[np.intp],
    out: NDArray[np.float32],
) -> None:
    """Write into out [l, E] each expert's odds multiplier from odds [L, B], by its bucket."""
    for place, layer in enumerate(layers):
        for expert in range(buckets.shape[1]):
            out[place, expert] = odds[layer, buckets[place, expert]]


@kernel
def bucket_of(age: int, edges: NDArray[np.int64]) -> int:
    """Return the bucket [0, B) of an age: the first whose edge, its largest age, reaches it."""
    bucket = 0
    while bucket < len(edges) and age > edges[bucket]:
        bucket += 1
    return bucket


@kernel
def scale_to_total(odds: NDArray[np.float32], total: np.float32, out: NDArray[np.float32]) -> None:
    """Write into out [E] the probabilities of odds [E] times a factor that makes them sum to total.

    Newton's method on the logarithm of the factor, kept inside a bracket. The last, small step is
    taken on the probabilities p themselves, as p + step * p * (1 - p): that keeps them in [0, 1],
    hits the total exactly, and is off by about 0.001 at most.
    """
    log_factor, low, high = 0.0, -80.0, 80.0
    for _ in range(_MAX_STEPS):
        factor = np.float32(np.exp(log_factor))
        for e in range(len(odds)):
            scaled = odds[e] * factor
            out[e] = scaled / (np.float32(1.0) + scaled)
        mass, squares = _sums(out)
        step = float(total - mass) / max(float(mass - squares), 1e-6)
        if abs(step) <= _LAST_LOG_STEP:
            small = np.float32(step)
            for e in range(len(odds)):
                out[e] += small * out[e] * (np.float32(1.0) - out[e])
            return
        if step < 0:
            high = log_factor
        else:
            low = log_factor
        log_factor += min(max(step, -_MAX_LOG_STEP), _MAX_LOG_STEP)
        if not low < log_factor < high:
            log_factor = 0.5 * (low + high)


@kernel
def _sums(values: NDArray[np.float32]) -> tuple[np.float32, np.float32]:
    """Return the sum and the sum of squares, each in four interleaved parts."""
    size = len(values)
    s0 = s1 = s2 = s3 = np.float32(0.0)
    q0 = q1 = q2 = q3 = np.float32(0.0)
    for j in range(0, size - 3, 4):
        a, b, c, d = values[j], values[j + 1], values[j + 2], values[j + 3]
        s0 += a
        s1 += b
        s2 += c
        s3 += d
        q0 += a * a
        q1 += b * b
        q2 += c * c
        q3 += d * d
    for j in range(size - size % 4, size):
        s0 += values[j]
        q0 += values[j] * values[j]
    return (s0 + s1) + (s2 + s3), (q0 + q1) + (q2 + q3)
