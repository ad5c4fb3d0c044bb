"""Expert caches beside others': equal misses on a million requests, and requests a second.

Needs ``pip install -e '.[cache-peers]'`` for libCacheSim, in an environment of its own, and ``pip
install moe-policylang`` for the second table. Run: ``python -m benchmarks.cache_peers``; for
quotable times under ``chrt -f 6``.

Against libCacheSim: misses on one layer with one expert a request, where both mean the same. Speed
is ours for whole passes of a model's shape, as a replay drives the cache, and libCacheSim's for a
binary trace that its own native reader reads. Against moe-policylang: `replay_policies` of its
package and our passes on the same routing, its trace in memory.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from specfit.core.cache import ExpertCache, make_cache
from specfit.core.experts import ModelGeometry

RULES = {"lru": "LRU", "fifo": "FIFO", "sieve": "Sieve"}
NUM_EXPERTS = 128
CAPACITY = 32
LAYERS, EXPERTS_PER_TOKEN = 48, 8
GEOMETRY = ModelGeometry(LAYERS, NUM_EXPERTS, EXPERTS_PER_TOKEN, 1, 2)
RECORD = np.dtype([("time", "<u4"), ("id", "<u8"), ("size", "<u4"), ("next", "<i8")])
"""A request in libCacheSim's oracleGeneral format."""

MOST_TIMES_LIBCACHESIM = 20
LEAST_TIMES_POLICYLANG = 100


def requests(count: int) -> np.ndarray:
    """Return expert ids: popular ones oftener, and which ones are popular drifts."""
    rng = np.random.default_rng(1)
    shares = 1.0 / np.arange(1, NUM_EXPERTS + 1)
    drift = np.arange(count) // 50_000 * 7
    return (rng.choice(NUM_EXPERTS, count, p=shares / shares.sum()) + drift) % NUM_EXPERTS


def router_probs(num_tokens: int) -> np.ndarray:
    """Return router distributions, float32[T, L, E]: each layer has favourites of its own."""
    rng = np.random.default_rng(2)
    logits = rng.normal(size=(num_tokens, LAYERS, NUM_EXPERTS)) + rng.normal(
        size=(1, LAYERS, NUM_EXPERTS)
    )
    exps = np.exp(logits)
    return (exps / exps.sum(axis=2, keepdims=True)).astype(np.float32)


def routing_of(probs: np.ndarray) -> np.ndarray:
    """Return the experts of the largest probabilities, int16[T, L, K]."""
    order = np.argpartition(-probs, EXPERTS_PER_TOKEN - 1, axis=2)
    return np.sort(order[:, :, :EXPERTS_PER_TOKEN], axis=2).astype(np.int16)


def our_misses(rule: str, experts: np.ndarray) -> int:
    cache = make_cache(f"{rule}:{CAPACITY}", ModelGeometry(1, NUM_EXPERTS, 1, 1, 2))
    routing, sizes = experts.reshape(-1, 1, 1), np.ones(len(experts), np.int64)
    return int(cache.run_passes(routing, sizes)[1, 0])


def our_replay(rule: str, routing: np.ndarray) -> tuple[float, int]:
    """Return seconds, the best of three, and hits of one-token passes through all layers."""
    cache: ExpertCache = make_cache(f"{rule}:{CAPACITY}", GEOMETRY)
    sizes = np.ones(len(routing), np.int64)
    cache.run_passes(routing[:1], sizes[:1])  # compiles

    def replay() -> int:
        cache.reset()
        return int(cache.run_passes(routing, sizes)[0].sum())

    return best_of_three(replay)


def best_of_three(run: Callable[[], int]) -> tuple[float, int]:
    """Return the least seconds of three runs, and what the last one gave."""
    seconds, given = [], 0
    for _ in range(3):
        started = time.perf_counter()
        given = run()
        seconds.append(time.perf_counter() - started)
    return min(seconds), given


def their_misses(rule: str, path: Path, count: int) -> tuple[int, float]:
    """Return libCacheSim's misses on a binary trace and its requests a second."""
    import libcachesim as peer

    columns = peer.ReaderInitParam(ignore_obj_size=True)
    reader = peer.TraceReader(str(path), peer.TraceType.ORACLE_GENERAL_TRACE, columns)
    cache = getattr(peer, RULES[rule])(cache_size=CAPACITY)
    started = time.perf_counter()
    miss_ratio, _ = cache.process_trace(reader)
    return round(miss_ratio * count), count / (time.perf_counter() - started)


def beside_libcachesim(num_requests: int, num_passes: int) -> list[str]:
    """Print a line a rule; return what is not as it must be."""
    experts = requests(num_requests)
    routing = routing_of(router_probs(256))[np.arange(num_passes) % 256]
    per_pass, wrong = LAYERS * EXPERTS_PER_TOKEN, []
    print(
        f"{'rule':6} {'our misses':>11} {'theirs':>11} {'our requests/s':>15} "
        f"{'libCacheSim':>12} {'ours/theirs':>11}"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "requests.oracleGeneral"
        records = np.zeros(len(experts), RECORD)
        records["time"], records["id"] = np.arange(len(experts)), experts + 1
        records["size"], records["next"] = 1, -1
        path.write_bytes(records.tobytes())
        for rule in RULES:
            theirs, their_rate = their_misses(rule, path, len(experts))
            ours, (seconds, _) = (
                our_misses(rule, experts.astype(np.int16)),
                our_replay(rule, routing),
            )
            rate = num_passes * per_pass / seconds
            print(
                f"{rule:6} {ours:11,} {theirs:11,} {rate:15,.0f} {their_rate:12,.0f} "
                f"{rate / their_rate:11.2f}"
            )
            if ours != theirs:
                wrong.append(f"{rule}: {ours} misses, libCacheSim has {theirs}")
            if rate * MOST_TIMES_LIBCACHESIM < their_rate:
                wrong.append(f"{rule}: {their_rate / rate:.1f} times slower than libCacheSim")
    return wrong


def beside_policylang(num_tokens: int) -> list[str]:
    """Print seconds of both on the same routing; return what is not as it must be."""
    from moe_policylang.benchmark.replay import replay_policies
    from moe_policylang.integrations.trace_recorder import TraceEntry, TraceRecording

    probs = router_probs(num_tokens)
    routing = routing_of(probs)
    entries = [
        TraceEntry(
            0, token, layer, routing[token, layer].tolist(), None, probs[token, layer].tolist()
        )
        for token in range(num_tokens)
        for layer in range(LAYERS)
    ]
    trace = TraceRecording("made up", LAYERS, NUM_EXPERTS, EXPERTS_PER_TOKEN, entries, True)

    def replay() -> int:
        share = CAPACITY / NUM_EXPERTS
        (cell,) = replay_policies(trace, EXPERTS_PER_TOKEN, ["topk_lru"], [share])
        return int(cell.hits)

    their_s, their_hits = best_of_three(replay)
    our_s, hits = our_replay("lru", routing)
    times = their_s / our_s
    print(
        f"\n{num_tokens} tokens x {LAYERS} layers, LRU {CAPACITY}: {our_s:.4f} s, {hits:,} hits; "
        f"moe-policylang {their_s:.2f} s, {their_hits:,} hits, {times:,.0f} times as long"
    )
    if times < LEAST_TIMES_POLICYLANG:
        return [f"moe-policylang takes only {times:.0f} times as long"]
    return []


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1_000_000)
    parser.add_argument("--passes", type=int, default=5_000)
    parser.add_argument("--tokens", type=int, default=2_600)
    options = parser.parse_args()
    wrong = beside_libcachesim(options.requests, options.passes)
    if find_spec("moe_policylang") is None:
        print("\nmoe-policylang is not installed; its table is left out")
    else:
        wrong += beside_policylang(options.tokens)
    print("\n".join(wrong) or "all as it must be")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
