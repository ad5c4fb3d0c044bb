"""Cycles a second of replaying a trace of Qwen3-30B-A3B's shape on one core, reading included.

48 layers of 128 experts, 8 a token, LRU with 25 % of the experts. Trees of 69 nodes: `eagle3`
verifies the best 61, `specfit` searches after every level, with a token table and expected prices.
``--wide`` records EAGLE-3's usual pool besides, 611 nodes a position, of which 61 are verified:
then most of the time is reading. The trace is the toy model's: what it costs to replay is like a
real one's, its figures are not. What compiles is compiled by a prompt that is not counted. Seconds
are those of the processor; each policy is replayed several times and the median counts.
Run: ``chrt -f 6 python -m benchmarks.replay_speed --out benchmarks/results/replay_speed.json``.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import pstats
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from specfit.cli.manifest import manifest
from specfit.core.backend import Request
from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.experts import ModelGeometry
from specfit.core.policy import Policy
from specfit.core.profile import HardwareProfile
from specfit.core.tree import DraftPlan
from specfit.policies import Eagle3, SpecFit
from specfit.policies.acceptance.adaptive import Adaptive
from specfit.policies.predictors.expert_table import TABLE_FILE, ExpertTable
from specfit.policies.predictors.token_table import TokenTable
from specfit.sim.record_positions import record_positions
from specfit.sim.replay import replay
from specfit.sim.trace import TraceMetadata, TraceReader, TraceWriter
from specfit.testing.toy import ToyBackend, ToyModel

VOCAB = 160
GEOMETRY = ModelGeometry(48, 128, 8, 9_437_184, VOCAB)
PROFILE = HardwareProfile(
    "made-up", "round numbers", "cited", 1e-3, 6e-4, 9e-3, 3e-5, 4e-6, 1e-5, 25e9, 9_437_184
)
PLAN, WIDE_PLAN = DraftPlan(5, 4, 61), DraftPlan(7, 10, 61)
POLICIES: dict[str, tuple[Policy, int]] = {
    "eagle3": (Eagle3(depth=5, top_k=4, max_nodes=61), 2000),
    "specfit": (SpecFit(depth=5, top_k=4, max_nodes=61), 500),
}
"""Each with the fewest cycles a second that it must reach."""
WIDE_POLICIES: dict[str, tuple[Policy, int]] = {
    "eagle3": (Eagle3(depth=7, top_k=10, max_nodes=61), 0)
}

CURVES = Path(__file__).parents[1] / "specfit" / "data" / "tiny" / "acceptance"


class TabledModel(ToyModel):
    """The toy model with every token's routing worked out once."""

    @cached_property
    def table(self) -> np.ndarray:
        """Experts of each token in each of 64 contexts, int16[V, 64, L, K]."""
        scores = self._token_scores[:, None] + self._context_scores[None, :]
        k = self.geometry.experts_per_token
        best = np.argpartition(-scores, k - 1, axis=3)[..., :k]
        return np.sort(best, axis=3).astype(np.int16)

    def routing(self, tokens: np.ndarray, states: np.ndarray) -> np.ndarray:
        contexts = (states >> np.uint64(32)) % np.uint64(64)
        return self.table[tokens, contexts.astype(np.intp)]


def write_trace(
    folder: Path, plans: tuple[DraftPlan, ...], num_prompts: int, num_tokens: int
) -> TokenTable:
    """Record a position-complete trace; return a predictor that knows the model's habits."""
    model = TabledModel(GEOMETRY, context_share=0.7)
    backend = ToyBackend(model, make_cache("lru:25%", GEOMETRY), PROFILE)
    rng = np.random.default_rng(0)
    requests = [
        Request(tuple(rng.integers(VOCAB, size=40).tolist()), num_tokens)
        for _ in range(num_prompts)
    ]
    metadata = TraceMetadata("positions", "synthetic", GEOMETRY, plans, model="toy")
    with TraceWriter.create(folder, metadata) as writer:
        record_positions(backend, requests, plans, writer)
    tables = folder.with_name("predictor")
    expert_table(model.table).save(TABLE_FILE, tables, {"source": "the toy model's own routing"})
    return TokenTable(str(tables))


def expert_table(routing: np.ndarray) -> ExpertTable:
    """Return the table of a token's expert frequencies over its contexts, int16[V, 64, L, K]."""
    uses = np.zeros((VOCAB, 48, 128), np.float32)
    tokens, layers = np.arange(VOCAB)[:, None, None], np.arange(48)[None, :, None]
    for context in range(routing.shape[1]):
        uses[tokens, layers, routing[:, context]] += 1
    shares = (uses + 0.5) / (routing.shape[1] + 1)
    odds = np.log(shares / (1 - shares))
    steps = np.linspace(odds.min(), odds.max(), 256)
    codes = np.searchsorted((steps[1:] + steps[:-1]) / 2, odds).astype(np.uint8)
    nothing = np.zeros((1, 48, 128), np.uint8)
    return ExpertTable(
        GEOMETRY, "toy", np.concatenate([nothing, codes]), np.exp(steps).astype(np.float32),
        np.arange(1, VOCAB + 1, dtype=np.int32), nothing, np.ones(256, np.float32),
        np.zeros(VOCAB, np.int32), np.array([4], np.int64), np.zeros(1),
        np.ones((1, 1, 48, 2), np.float32), 0.9,
    )  # fmt: skip


def measure(
    folder: Path, predictor: TokenTable, policy: Policy, profiler: cProfile.Profile | None
) -> tuple[int, float]:
    """Return the cycles of all prompts but the first and their seconds, reading included."""
    cycles, started = 0, 0.0
    for number, result in enumerate(
        replay(
            TraceReader(folder),
            policy,
            make_cache("lru:25%", GEOMETRY),
            PROFILE,
            cost=ProfileCost(PROFILE),
            predictor=predictor,
            acceptance=Adaptive(str(CURVES)),
        )
    ):
        if number == 0:
            if profiler is not None:
                profiler.enable()
            started = time.process_time()
        else:
            cycles += len(result.cycles)
    seconds = time.process_time() - started
    if profiler is not None:
        profiler.disable()
    return cycles, seconds


def row_of(name: str, runs: Sequence[tuple[int, float]], least: int) -> dict[str, Any]:
    """Return a policy's cycles a second: the median of its runs, and each."""
    rates = [cycles / seconds for cycles, seconds in runs]
    median = float(np.median(rates))
    return {"policy": name, "cycles": runs[0][0], "bar": least, "median": median, "runs": rates}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--prompts", type=int, default=9, help="The first is not counted.")
    parser.add_argument("--tokens", type=int, default=256)
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("--policy", choices=list(POLICIES), action="append")
    parser.add_argument("--trace", type=Path, help="Folder to keep the trace in, or to reuse.")
    parser.add_argument("--runs", type=int, default=5, help="Replays of each policy.")
    parser.add_argument("--out", type=Path, help="JSON file of the results.")
    parser.add_argument("--profile", action="store_true", help="Print where the time goes.")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.trace or Path(temporary) / "trace"
        if folder.exists():
            predictor = TokenTable(str(folder.with_name("predictor")))
        else:
            plans = (PLAN, WIDE_PLAN) if options.wide else (PLAN,)
            predictor = write_trace(folder, plans, options.prompts, options.tokens)
        size = sum(path.stat().st_size for path in folder.iterdir())
        print(f"{size / 1e6:.0f} MB, {options.prompts - 1} prompts of {options.tokens} tokens")
        policies = WIDE_POLICIES if options.wide else POLICIES
        rows = []
        for name, (policy, least) in policies.items():
            if options.policy and name not in options.policy:
                continue
            profiler = cProfile.Profile() if options.profile else None
            runs = [measure(folder, predictor, policy, profiler) for _ in range(options.runs)]
            rows.append(row_of(name, runs, least))
            print(
                "{policy:8} {cycles:6,} cycles, {median:7,.0f} a second; bar {bar:,}".format(
                    **rows[-1]
                )
            )
            if profiler is not None:
                pstats.Stats(profiler).sort_stats("tottime").print_stats(32)
    if options.out is not None:
        what = {"what": "replayed cycles a second of processor time, reading included"}
        found = {**what, "trace_bytes": size, "wide": options.wide, "rows": rows, **manifest()}
        options.out.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 1 if any(row["median"] < row["bar"] for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
