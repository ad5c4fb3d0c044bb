"""Kernels of the synthetic model. Every number is a hash of a context and a place: no state.

Flat arrays in and out, no validation; outputs are passed in. A context is a 64-bit key, the hash
of its tokens; ``latents`` are the D numbers that it carries along.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core._jit import kernel

GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@kernel
def mix(state: Any, value: Any) -> Any:
    """Return the hash of `state` and `value`, both uint64 (the finaliser of splitmix64)."""
    z = state + (value + np.uint64(1)) * GOLDEN
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


@kernel
def uniform(state: Any, place: Any) -> Any:
    """Return a number in (0, 1) that belongs to a place of a state."""
    return (float(mix(state, place) >> np.uint64(11)) + 0.5) / 9007199254740992.0


@kernel
def normal(state: Any, place: Any) -> Any:
    """Return a nearly normal number: the scaled sum of the four 16-bit words of one hash."""
    bits = mix(state, place)
    words = np.uint64(0xFFFF)
    total = bits & words
    total += (bits >> np.uint64(16)) & words
    total += (bits >> np.uint64(32)) & words
    total += bits >> np.uint64(48)
    return (float(total) - 131070.0) * 2.6429101e-05


@kernel
def follow(
    keys: NDArray[np.uint64],
    latents: NDArray[np.float32],
    parents: NDArray[np.int32],
    tokens: NDArray[np.int64],
    carry: float,
    num_drifts: int,
    num_topics: int,
    first: int,
) -> None:
    """Fill rows `first` and on: the context of each row's parent, gone on with the row's token.

    Of the D latent numbers `num_drifts` keep the part `carry` of what they were; then come
    `num_topics` new ones, those of the token before, of the one before that, and so on.
    """
    renewed = np.sqrt(1.0 - carry * carry)
    for row in range(first, len(tokens)):
        parent = parents[row]
        key = mix(keys[parent], np.uint64(tokens[row]))
        keys[row] = key
        for d in range(num_drifts):
            latents[row, d] = carry * latents[parent, d] + renewed * normal(key, np.uint64(d))
        for d in range(num_drifts, num_drifts + num_topics):
            latents[row, d] = normal(key, np.uint64(d))
        for d in range(num_drifts + num_topics, latents.shape[1]):
            latents[row, d] = latents[parent, d - num_topics]


@kernel
def fill_normals(tokens: NDArray[np.int64], out: NDArray[np.float32]) -> None:
    """Fill the flat `out` with numbers that belong to some tokens."""
    key = mix(np.uint64(0), np.uint64(2**32))
    for token in tokens:
        key = mix(key, np.uint64(token))
    for i in range(len(out)):
        out[i] = normal(key, np.uint64(i))


@kernel
def route(
    keys: NDArray[np.uint64],
    tokens: NDArray[np.int64],
    scores: NDArray[np.float32],
    token_scores: NDArray[np.float32],
    token_weight: NDArray[np.float32],
    noise_weight: NDArray[np.float32],
    routing: NDArray[np.int16],
) -> None:
    """Fill `routing` [n, L, K] with the K experts of the highest score, ascending by id.

    ``token_weight[l] * token_scores[token, l, e] + noise_weight[l] * noise`` is added to `scores`
    [n, L, E] first.
    """
    _, num_layers, num_experts = scores.shape
    k = routing.shape[2]
    best = np.empty(k, np.float32)
    for n in range(len(tokens)):
        noise_key = mix(keys[n], GOLDEN)
        for layer in range(num_layers):
            row = scores[n, layer]
            of_token = token_scores[tokens[n], layer]
            by_token, by_noise = token_weight[layer], noise_weight[layer]
            for e in range(num_experts):
                row[e] += by_token * of_token[e]
            if by_noise > 0:
                for e in range(num_experts):
                    place = np.uint64(layer * num_experts + e)
                    row[e] += by_noise * np.float32(normal(noise_key, place))
            best[:] = -np.inf
            for e in range(num_experts):
                score = row[e]
                if score > best[k - 1]:
                    i = k - 1
                    while i > 0 and best[i - 1] < score:
                        best[i] = best[i - 1]
                        i -= 1
                    best[i] = score
            found = 0
            for e in range(num_experts):
                if found < k and row[e] >= best[k - 1]:
                    routing[n, layer, found] = e
                    found += 1


@kernel
def draw_candidates(
    keys: NDArray[np.uint64], odds: NDArray[np.float64], candidates: NDArray[np.int64]
) -> None:
    """Fill `candidates` [n, C] with different tokens; the first is the target's own.

    ``odds`` [V] are the cumulated probabilities of the tokens.
    """
    for n in range(len(keys)):
        place = np.uint64(3)
        found = 0
        while found < candidates.shape[1]:
            token = np.searchsorted(odds, uniform(keys[n], place))
            place += np.uint64(1)
            token = min(token, len(odds) - 1)
            is_new = True
            for i in range(found):
                if candidates[n, i] == token:
                    is_new = False
            if is_new:
                candidates[n, found] = token
                found += 1


@kernel
def draft(
    keys: NDArray[np.uint64],
    exponents: NDArray[np.float64],
    shape: float,
    shares: NDArray[np.float64],
    candidates: NDArray[np.int64],
    tokens: NDArray[np.int64],
    probs: NDArray[np.float64],
) -> None:
    """Fill the drafter's best tokens after each context and the probability of each being right.

    ``exponents`` [n] set how confident the drafter is on average; `shares` [R] split what the best
    token leaves; `candidates` [n, R + 2], the target's own token first; `tokens` and `probs`
    [n, R + 1]. The target's token stands at each rank with just that rank's probability.
    """
    lowest = shares[0] / (1.0 + shares[0])
    for n in range(len(keys)):
        sure = 1.0 - (1.0 - uniform(keys[n], np.uint64(0))) ** (1.0 / shape)
        best = lowest + (1.0 - lowest) * sure ** exponents[n]
        probs[n, 0] = best
        for r in range(len(shares)):
            probs[n, r + 1] = (1.0 - best) * shares[r]
        draw = uniform(keys[n], np.uint64(1))
        other = 1
        is_placed = False
        for r in range(probs.shape[1]):
            draw -= probs[n, r]
            if draw < 0 and not is_placed:
                tokens[n, r] = candidates[n, 0]
                is_placed = True
            else:
                tokens[n, r] = candidates[n, other]
                other += 1
