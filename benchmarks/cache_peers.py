"""Expert caches beside libCacheSim: equal misses on a million requests, and requests a second.

Needs ``pip install libcachesim``. Run: ``python -m benchmarks.cache_peers``.

Misses are compared on one layer with one expert a request, where both mean the same. Speed is ours
for whole passes of a model's shape, as a replay drives the cache, and libCacheSim's for a CSV file
read by its own native reader.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from specfit.core.cache import ExpertCache, make_cache
from specfit.core.experts import ModelGeometry

RULES = {"lru": "LRU", "fifo": "FIFO", "sieve": "Sieve"}
NUM_EXPERTS = 128
CAPACITY = 32
LAYERS, EXPERTS_PER_TOKEN = 48, 8


def requests(count: int) -> np.ndarray:
    """Return expert ids: popular ones oftener, and which ones are popular drifts."""
    rng = np.random.default_rng(1)
    shares = 1.0 / np.arange(1, NUM_EXPERTS + 1)
    drift = np.arange(count) // 50_000 * 7
    return (rng.choice(NUM_EXPERTS, count, p=shares / shares.sum()) + drift) % NUM_EXPERTS


def our_misses(rule: str, experts: np.ndarray) -> int:
    cache = make_cache(f"{rule}:{CAPACITY}", ModelGeometry(1, NUM_EXPERTS, 1, 1, 2))
    wanted = np.empty(1, np.int64)
    misses = 0
    for wanted[0] in experts:
        misses += len(cache.request(0, wanted).loads)
    return misses


def our_rate(rule: str, num_passes: int) -> float:
    """Return requests a second of one-token passes through all layers."""
    geometry = ModelGeometry(LAYERS, NUM_EXPERTS, EXPERTS_PER_TOKEN, 1, 2)
    per_pass = LAYERS * EXPERTS_PER_TOKEN
    rng = np.random.default_rng(2)
    order = rng.random((64, LAYERS, NUM_EXPERTS)).argsort(axis=2)
    tokens = order[:, None, :, :EXPERTS_PER_TOKEN].astype(np.int16)
    cache: ExpertCache = make_cache(f"{rule}:{CAPACITY}", geometry)
    cache.run_pass(tokens[0])  # compiles
    started = time.perf_counter()
    for number in range(num_passes):
        cache.run_pass(tokens[number % len(tokens)])
    return num_passes * per_pass / (time.perf_counter() - started)


def their_misses(rule: str, path: Path, count: int) -> tuple[int, float]:
    """Return libCacheSim's misses on a CSV file and its requests a second."""
    import libcachesim as peer

    columns = peer.ReaderInitParam(ignore_obj_size=True, has_header=False, delimiter=",")
    columns.time_field, columns.obj_id_field, columns.obj_size_field = 1, 2, 3
    reader = peer.TraceReader(str(path), peer.TraceType.CSV_TRACE, columns)
    cache = getattr(peer, RULES[rule])(cache_size=CAPACITY)
    started = time.perf_counter()
    miss_ratio, _ = cache.process_trace(reader)
    return round(miss_ratio * count), count / (time.perf_counter() - started)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--passes", type=int, default=5_000)
    options = parser.parse_args()
    experts = requests(options.requests)
    all_equal = True
    print(f"{'rule':6} {'our misses':>11} {'theirs':>11} {'our requests/s':>15} {'theirs':>12}")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "requests.csv"
        path.write_text("".join(f"{i},{e + 1},1\n" for i, e in enumerate(experts)), "utf-8")
        for rule in RULES:
            theirs, their_rate = their_misses(rule, path, len(experts))
            ours, rate = our_misses(rule, experts), our_rate(rule, options.passes)
            all_equal &= ours == theirs
            print(f"{rule:6} {ours:11,} {theirs:11,} {rate:15,.0f} {their_rate:12,.0f}")
    print("misses are equal" if all_equal else "MISSES DIFFER")
    return 0 if all_equal else 1


if __name__ == "__main__":
    sys.exit(main())
