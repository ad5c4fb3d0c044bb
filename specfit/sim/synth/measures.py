"""What was published of Qwen3-30B-A3B's routing, measured on any texts by the same definitions."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from specfit.core.cache import make_cache
from specfit.core.experts import ModelGeometry
from specfit.sim.synth.texts import Text

HISTORY_DECAY = 0.95
"""What a past use of an expert still counts a token later, in decayed frequency."""

TABLE_WEIGHT = 2.0
"""How many tokens the average over all tokens counts for in a token's row of the table."""

NUM_COMPONENTS = 64
"""Principal components of the full-stack routing that the ridge regression looks at."""

RIDGE_PENALTY = 1000.0

Routing = NDArray[np.int16]
Masks = NDArray[np.bool_]


def overlap_by_layer(texts: Sequence[Text], *, in_prompt: bool = False) -> NDArray[np.float64]:
    """Return the share of a token's experts that the token before it needed too, float64[L]."""
    shares = []
    for text in texts:
        mask = text.mask[: text.num_prompt] if in_prompt else text.mask[text.num_prompt :]
        shares.append((mask[1:] & mask[:-1]).sum(axis=2).mean(axis=0) / text.routing.shape[2])
    mean: NDArray[np.float64] = np.mean(shares, axis=0)
    return mean


def union_size(texts: Sequence[Text], num_tokens: int, *, in_prompt: bool = True) -> float:
    """Return the distinct experts of a layer in so many consecutive tokens, on average."""
    sizes = []
    for text in texts:
        mask = text.mask[: text.num_prompt] if in_prompt else text.mask[text.num_prompt :]
        starts = range(0, len(mask) - num_tokens + 1, max(1, num_tokens // 2))
        sizes += [mask[i : i + num_tokens].any(axis=0).sum(axis=1).mean() for i in starts]
    return float(np.mean(sizes))


def lru_hit_rate(texts: Sequence[Text], geometry: ModelGeometry, slots: int) -> float:
    """Return the hit rate of LRU with so many slots a layer, empty before each generated text."""
    cache = make_cache(f"lru:{slots}", geometry)
    hits = requests = 0
    for text in texts:
        cache.reset()
        for t in range(text.num_prompt, len(text.routing)):
            num_hits, num_misses, _ = cache.run_pass(text.routing[t : t + 1]).sum(axis=1).tolist()
            hits += num_hits
            requests += num_hits + num_misses
    return hits / requests


def decayed_frequency_precision(texts: Sequence[Text], horizon: int) -> float:
    """Return how many of the 8 experts used most so far are needed `horizon` tokens later."""
    found = []
    for text in texts:
        mask = text.mask
        frequency = np.zeros(mask.shape[1:], np.float32)
        for t in range(len(mask) - horizon):
            frequency = np.float32(HISTORY_DECAY) * frequency + mask[t]
            if t >= text.num_prompt:
                found.append(_precision(frequency, mask[t + horizon]))
    return float(np.mean(found))


def token_table_precision(
    known: Sequence[Text], texts: Sequence[Text], vocab_size: int
) -> NDArray[np.float64]:
    """Return how many of a token's 8 likeliest experts it needs, by layer, float64[L].

    The table counts the tokens of the texts in `known`.
    """
    tokens = np.concatenate([text.tokens for text in known])
    needed = np.concatenate([text.mask for text in known])
    average = needed.mean(axis=0, dtype=np.float32)
    order = np.argsort(tokens, kind="stable")
    seen, starts = np.unique(tokens[order], return_index=True)
    counts = np.zeros((vocab_size, *average.shape), np.float32)
    counts[seen] = np.add.reduceat(needed[order], starts, axis=0, dtype=np.float32)
    found = []
    for text in texts:
        tokens = text.tokens[text.num_prompt :]
        rows = counts[tokens] + TABLE_WEIGHT * average
        found.append(_precision_by_layer(rows, text.mask[text.num_prompt :]))
    mean: NDArray[np.float64] = np.mean(np.concatenate(found), axis=0)
    return mean


def ridge_precision(
    known: Sequence[Text], texts: Sequence[Text], horizons: Sequence[int]
) -> list[float]:
    """Return how many of the 8 experts that a ridge regression names are needed, by horizon.

    It looks at one token's routing in the whole stack, in `NUM_COMPONENTS` principal components,
    and names the experts of a token ahead.
    """
    mean, basis = _components(np.concatenate([_generated(text) for text in known]))
    precisions = []
    for horizon in horizons:
        x, y = _pairs(known, horizon)
        x_test, y_test = _pairs(texts, horizon)
        z, z_test = (_project(masks, mean, basis) for masks in (x, x_test))
        gram = z.T @ z + np.float32(RIDGE_PENALTY) * np.eye(z.shape[1], dtype=np.float32)
        weights = np.linalg.solve(gram, z.T @ y.reshape(len(y), -1).astype(np.float32))
        scores = (z_test @ weights).reshape(y_test.shape)
        precisions.append(float(_precision_by_layer(scores, y_test).mean()))
    return precisions


def _pairs(texts: Sequence[Text], horizon: int) -> tuple[Masks, Masks]:
    """Return the masks of all generated tokens, and of those `horizon` later."""
    masks = [_generated(text) for text in texts]
    now = np.concatenate([mask[:-horizon] for mask in masks])
    return now, np.concatenate([mask[horizon:] for mask in masks])


def _generated(text: Text) -> Masks:
    return text.mask[text.num_prompt :]


def _components(masks: Masks) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the mean of the flattened rows and their leading directions, found by sketching."""
    flat = masks.reshape(len(masks), -1).astype(np.float32)
    mean = flat.mean(axis=0)
    flat -= mean
    rng = np.random.default_rng(0)
    sketch = rng.standard_normal((len(flat), NUM_COMPONENTS), np.float32)
    for _ in range(2):
        directions, _ = np.linalg.qr(flat.T @ sketch)
        sketch = flat @ directions
    return mean, directions


def _project(
    masks: Masks, mean: NDArray[np.float32], basis: NDArray[np.float32]
) -> NDArray[np.float32]:
    """Return the components of each row, and a 1."""
    flat = masks.reshape(len(masks), -1).astype(np.float32)
    ones = np.ones((len(masks), 1), np.float32)
    return np.concatenate([(flat - mean) @ basis, ones], axis=1)


def _precision(scores: NDArray[np.float32], needed: Masks) -> float:
    return float(_precision_by_layer(scores[None], needed[None]).mean())


def _precision_by_layer(scores: NDArray[np.float32], needed: Masks) -> NDArray[np.float64]:
    """Return the share of the K best scores that are needed, float64[n, L]."""
    k = int(needed[0, 0].sum())
    best = np.argpartition(-scores, k - 1, axis=2)[..., :k]
    share: NDArray[np.float64] = np.take_along_axis(needed, best, 2).mean(axis=2)
    return share
