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

NUM_COMPONENTS = 96
"""Principal components of the full-stack routing that the ridge regression looks at."""

RIDGE_PENALTY = 30.0

Routing = NDArray[np.int16]
Masks = NDArray[np.bool_]


def overlap_by_layer(texts: Sequence[Text], *, in_prompt: bool = False) -> NDArray[np.float64]:
    """Return the share of a token's experts that the token before it needed too, float64[L]."""
    shares = []
    for text in texts:
        mask = text.mask[: text.num_prompt] if in_prompt else text.mask[text.num_prompt :]
        shares.append((mask[1:] & mask[:-1]).sum(axis=2).mean(axis=0) / text.routing.shape[2])
    return np.mean(shares, axis=0)


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
    return np.mean(np.concatenate(found), axis=0)


def ridge_precision(
    known: Sequence[Text], texts: Sequence[Text], horizons: Sequence[int]
) -> list[float]:
    """Return how many of the 8 experts that a ridge regression names are needed, by horizon.

    It looks at one token's routing in the whole stack (as its layer's own experts and
    `NUM_COMPONENTS` principal components of all layers') and names the experts of a token ahead.
    """
    now = [_generated(text) for text in known]
    then = [_generated(text) for text in texts]
    mean, basis = _components(np.concatenate(now))
    precisions = []
    for horizon in horizons:
        ahead = [(mask[:-horizon], mask[horizon:]) for mask in now]
        x, y = (np.concatenate(parts) for parts in zip(*ahead, strict=True))
        tested = [(mask[:-horizon], mask[horizon:]) for mask in then]
        xt, yt = (np.concatenate(parts) for parts in zip(*tested, strict=True))
        z, zt = (_project(m, mean, basis) for m in (x, xt))
        found = [
            _ridge_layer(z, x[:, layer], y[:, layer], zt, xt[:, layer], yt[:, layer])
            for layer in range(x.shape[1])
        ]
        precisions.append(float(np.mean(found)))
    return precisions


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
    flat = masks.reshape(len(masks), -1).astype(np.float32)
    projected: NDArray[np.float32] = (flat - mean) @ basis
    return projected


def _ridge_layer(
    z: NDArray[np.float32],
    own: Masks,
    target: Masks,
    z_test: NDArray[np.float32],
    own_test: Masks,
    target_test: Masks,
) -> float:
    x = np.concatenate([z, own, np.ones((len(z), 1))], axis=1, dtype=np.float32)
    gram = x.T @ x + np.float32(RIDGE_PENALTY) * np.eye(x.shape[1], dtype=np.float32)
    weights = np.linalg.solve(gram, x.T @ target.astype(np.float32))
    x_test = np.concatenate([z_test, own_test, np.ones((len(z_test), 1))], axis=1, dtype=np.float32)
    return float(_precision_by_layer((x_test @ weights)[:, None], target_test[:, None]).mean())


def _precision(scores: NDArray[np.float32], needed: Masks) -> float:
    return float(_precision_by_layer(scores[None], needed[None]).mean())


def _precision_by_layer(scores: NDArray[np.float32], needed: Masks) -> NDArray[np.float64]:
    """Return the share of the K best scores that are needed, float64[n, L]."""
    k = int(needed[0, 0].sum())
    best = np.argpartition(-scores, k - 1, axis=2)[..., :k]
    share: NDArray[np.float64] = np.take_along_axis(needed, best, 2).mean(axis=2)
    return share
