"""Memory and speed of replaying a trace far larger than memory should need.

Writes a made-up position-complete trace of Qwen3-30B-A3B's shape (48 layers of 128 experts, 8 a
token; 611 draft nodes a position) and replays `eagle3` on it in a process of its own.
Run: ``python -m benchmarks.trace_memory --gigabytes 2``.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from specfit.core.backend import Request
from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.experts import ModelGeometry
from specfit.core.tree import DraftPlan, DraftTree
from specfit.policies import Eagle3
from specfit.sim.replay import replay
from specfit.sim.trace import Answers, PositionRow, PromptRow, TraceMetadata, TraceReader
from specfit.sim.trace.writer import TraceWriter
from specfit.testing.examples import DrafterAcceptance, UniformPredictor, example_profile

GEOMETRY = ModelGeometry(48, 128, 8, 9_437_184, 151_936)
PLAN = DraftPlan(depth=7, top_k=10, max_nodes=60)
TOKENS_A_PROMPT = 256
MOST_BYTES = 500_000_000


def pool(root: int) -> DraftTree:
    """Return a tree of the plan's shape: of each level the first `top_k` nodes are expanded."""
    parents, ranks, first = [-1], [0], [0]
    for level in range(PLAN.depth):
        expanded = [0] if level == 0 else range(first[-1], first[-1] + PLAN.top_k)
        first.append(len(parents))
        for parent in expanded:
            parents += [parent] * PLAN.top_k
            ranks += range(PLAN.top_k)
    tokens = np.array(ranks, np.int64)
    tokens[0] = root
    log_probs = np.where(np.arange(len(parents)) > 0, -0.5 - np.array(ranks), 0.0)
    return DraftTree(
        tokens,
        np.array(parents, np.int32),
        log_probs.astype(np.float32),
        np.array(ranks, np.int32),
        np.zeros(len(parents), np.float32),
    )


def write(folder: Path, num_bytes: float) -> None:
    """Write prompts until the parts hold so many bytes."""
    rng = np.random.default_rng(0)
    metadata = TraceMetadata("positions", "synthetic", GEOMETRY, (PLAN,), model="made up")
    request = Request((1, 2, 3, 4), TOKENS_A_PROMPT)
    routing = rng.integers(128, size=(4, 48, 8)).astype(np.int16)
    with TraceWriter.create(folder, metadata) as writer:
        while size_of(folder) < num_bytes:
            text = rng.integers(PLAN.top_k, size=TOKENS_A_PROMPT)
            for place in range(TOKENS_A_PROMPT - 1):
                writer.add(row(writer.next_prompt, place, text, rng))
            writer.end_prompt(
                PromptRow(
                    writer.next_prompt, request, tuple(text.tolist()), "length", routing, (4,), 0.1
                )
            )


def row(prompt: int, place: int, text: np.ndarray, rng: np.random.Generator) -> PositionRow:
    trie = pool(int(text[place]))
    n = len(trie)
    depth = min(PLAN.depth, TOKENS_A_PROMPT - place - 2)
    kept = np.flatnonzero(trie.depths <= depth)
    trie = DraftTree(
        trie.tokens[kept], trie.parents[kept], trie.log_probs[kept], trie.ranks[kept],
        trie.entropies[kept],
    )  # fmt: skip
    n = len(trie)
    answers = Answers(
        rng.integers(PLAN.top_k, size=n),
        np.ones(n, np.float32),
        np.ones(n, np.float32),
        np.frombuffer(rng.bytes(n * 48 * 8), np.uint8).reshape(n, 48, 8).astype(np.int16) % 128,
    )
    return PositionRow(
        prompt, 4 + place, trie, answers, (np.arange(n, dtype=np.int32),), (max(depth, 0),)
    )


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def replay_all(folder: Path) -> None:
    """Replay `eagle3` and print cycles, seconds and the most memory."""
    profile = example_profile()
    trace, cycles = TraceReader(folder), 0
    started = time.perf_counter()
    for result in replay(
        trace,
        Eagle3(depth=7, top_k=10, max_nodes=60),
        make_cache("lru:25%", GEOMETRY),
        profile,
        cost=ProfileCost(profile),
        predictor=UniformPredictor(GEOMETRY),
        acceptance=DrafterAcceptance(),
    ):
        cycles += len(result.cycles)
    seconds = time.perf_counter() - started
    most = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"{cycles:,} cycles in {seconds:.1f} s, {cycles / seconds:,.0f} a second")
    print(f"{most / 1e6:,.0f} MB of memory at most; the limit is {MOST_BYTES / 1e6:,.0f} MB")
    sys.exit(0 if most <= MOST_BYTES else 1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gigabytes", type=float, default=2.0)
    parser.add_argument("--replay", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.replay:
        replay_all(options.replay)
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder) / "trace"
        write(trace, options.gigabytes * 1e9)
        print(f"{size_of(trace) / 1e9:.2f} GB in {len(list(trace.iterdir()))} files")
        command = [sys.executable, "-m", "benchmarks.trace_memory", "--replay", str(trace)]
        return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
