"""Live decoding on the CPU behind an emulated link: specfit against plain decoding and EAGLE-3.

``python -m benchmarks.decode`` calibrates this machine, emulates a link over which copies cost,
relative to compute, what they cost for Qwen3-30B-A3B on PCIe 4 x16, tunes EAGLE-3 for each cache
size on training prompts, then decodes held-out prompts under every policy, interleaved by prompt,
and checks every text against stock `transformers`. It prints the table, writes it with its
manifest, and ends with status 1 if a text differs or a bar is missed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import platform
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.bars import Row, missed_bars
from benchmarks.ceiling import perfect_tokens_per_s
from benchmarks.stock import stock_speed
from benchmarks.tuning import training_trace, tuned
from specfit.backends import load
from specfit.backends.calibrate import calibrate, pcie4_link
from specfit.backends.reference import StockModel
from specfit.backends.torch_backend import TorchBackend
from specfit.cli.manifest import manifest
from specfit.cli.prompts import read_prompts
from specfit.core.backend import Request
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeLoop, DecodeResult
from specfit.core.noise import Sampling
from specfit.core.policy import Policy
from specfit.core.prefetch import Prefetcher
from specfit.core.profile import HardwareProfile
from specfit.core.search import warm_up as warm_up_search
from specfit.policies import Autoregressive, Eagle3, SpecFit
from specfit.policies.inputs import load_inputs
from specfit.policies.practice import warm_up
from specfit.sim.metrics import Metrics, distinct_4, measure

DATA = Path(__file__).parents[1] / "specfit" / "data"
RESULTS = Path(__file__).parent / "results"
CACHES = ("lru:100%", "lru:75%", "lru:50%", "lru:25%", "lru:8")
NUM_PROMPTS = {"lru:8": 6, "lru:25%": 8}
"""Prompts of the caches that make decoding slow; the others take all that are asked for."""
LOOPING = 0.5
"""Texts with a smaller share of distinct runs of four tokens are reported apart."""


@dataclass
class Timed:
    """What one policy did on every prompt: counters of each run, seconds by run and prompt."""

    tokens: dict[int, int] = field(default_factory=dict)  # by prompt
    seconds: dict[tuple[int, int], float] = field(default_factory=dict)  # by run and prompt
    metrics: dict[tuple[int, int], Metrics] = field(default_factory=dict)

    def add(self, run: int, prompt: int, result: DecodeResult, expert_bytes: int) -> None:
        """Take the result of one prompt in one run."""
        self.tokens[prompt] = result.num_decoded
        self.seconds[run, prompt] = result.decode_s
        self.metrics[run, prompt] = measure([result], expert_bytes)


@dataclass(frozen=True)
class Bench:
    """Everything that the runs share."""

    backend: TorchBackend
    profile: HardwareProfile
    requests: tuple[Request, ...]
    expected: tuple[tuple[int, ...], ...]

    def some(self, most: int) -> Bench:
        """Return the same with at most so many of the prompts, evenly over them."""
        chosen = _spread(len(self.requests), most)
        return replace(
            self,
            requests=tuple(self.requests[i] for i in chosen),
            expected=tuple(self.expected[i] for i in chosen),
        )

    def loop(self, policy: Policy, prefetcher: Prefetcher | None = None) -> DecodeLoop:
        """Return the decode loop of a policy, with the shipped inputs."""
        sampling = self.requests[0].sampling
        folder = self.backend.checkpoint.folder
        predictor, acceptance = load_inputs(folder, self.backend.geometry, sampling)
        warm_up(predictor, acceptance, self.backend.geometry)
        cost = ProfileCost(self.profile)
        return DecodeLoop(self.backend, policy, cost, predictor, acceptance, prefetcher=prefetcher)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return the exit status."""
    options = _options(arguments)
    torch.set_num_threads(options.threads)
    origin = manifest(torch=torch.__version__, python=platform.python_version())
    warm_up_search()
    backend = load(options.model, cache="lru:100%")
    link = pcie4_link(calibrate(backend), backend.geometry)
    backend.set_link(link)
    profile = calibrate(backend, name="cpu-emulated-pcie4")
    requests = requests_of(backend, options.prompts, options.tokens, options.num_prompts)
    training = requests_of(backend, DATA / "prompts" / "tune.jsonl", options.tokens, 8)
    stock = StockModel(backend.checkpoint.folder)
    bench = Bench(backend, profile, requests, tuple(stock.generate(r) for r in requests))
    trace = training_trace(backend, training[:6])
    rows: list[Row] = []
    for cache in options.caches:
        tree = tuned(trace, backend, training[:4], cache, profile)
        some = bench.some(NUM_PROMPTS.get(cache, options.num_prompts))
        rows.extend(_measure_cache(some, cache, tree, options))
        _print_rows(rows[-4:])
    stock_ratio = stock_speed(backend, stock, bench.some(6).requests, bench.loop(Autoregressive()))
    kept = _kept(options) if options.add else {}
    rows += [Row(**row) for row in kept.get("rows", [])]
    rows.sort(key=lambda row: CACHES.index(row.cache))
    report = _report(rows, stock_ratio, bench, options) | {"manifest": origin}
    if kept:
        report["kept"] = {name: kept[name] for name in ("date", "stock_ratio", "manifest")}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    missed = missed_bars(rows, stock_ratio)
    for line in missed:
        print(f"missed: {line}")
    return 1 if missed else 0


def _kept(options: argparse.Namespace) -> dict[str, Any]:
    """Return the results on record, without the rows of the caches that are measured now."""
    report: dict[str, Any] = json.loads(options.out.read_text(encoding="utf-8"))
    rows = [row for row in report["rows"] if row["cache"] not in options.caches]
    return report | {"rows": rows}


def _measure_cache(
    bench: Bench, cache: str, tree: Eagle3, options: argparse.Namespace
) -> list[Row]:
    """Time every policy with one cache, interleaved by prompt; return a row a policy."""
    policies: dict[str, Policy] = {
        "autoregressive": Autoregressive(),
        "eagle3": Eagle3(),
        "eagle3-tuned": tree,
        "specfit": SpecFit(),
    }
    bench.backend.set_cache(cache)
    loops = {name: bench.loop(policy) for name, policy in policies.items()}
    timed: dict[str, Timed] = defaultdict(Timed)
    plain: dict[int, DecodeResult] = {}
    names = list(loops)
    for run, prompt in itertools.product(range(options.runs), range(len(bench.requests))):
        turn = (run + prompt) % len(names)
        for name in names[turn:] + names[:turn]:
            if name == "eagle3" and run >= options.default_runs:
                continue
            result = loops[name].run(bench.requests[prompt])
            check_text(result, bench.expected[prompt], name, cache)
            timed[name].add(run, prompt, result, bench.backend.geometry.expert_bytes)
            if name == "autoregressive":
                plain[prompt] = result
        _show_progress(cache, run, prompt, options.runs, len(bench.requests))
    texts = [plain[i] for i in sorted(plain)]
    ceiling = perfect_tokens_per_s(texts, cache, bench.backend.geometry, bench.profile)
    kept = [i for i, text in enumerate(texts) if distinct_4(text.tokens) >= LOOPING]
    return [_row(timed, name, policies[name], cache, ceiling, kept) for name in names]


def _row(
    timed: dict[str, Timed], name: str, policy: Policy, cache: str, ceiling: float, kept: list[int]
) -> Row:
    ours = timed[name]
    metrics = [ours.metrics[key] for key in sorted(ours.metrics)]
    selected = [ours.metrics[key] for key in sorted(ours.metrics) if key[1] in kept]
    return Row(
        cache=cache,
        policy=name,
        params=policy.to_spec()["params"],
        tokens_per_s=_rate(ours),
        speedup=interval_of(ours, timed["autoregressive"]),
        against_tuned=interval_of(ours, timed["eagle3-tuned"]),
        ceiling_tokens_per_s=ceiling,
        committed_per_cycle=_mean(metrics, "num_committed", "num_cycles"),
        verified_per_cycle=_mean(metrics, "num_verified", "num_cycles"),
        levels_per_cycle=_mean(metrics, "num_levels", "num_cycles"),
        copied_per_token=_mean(metrics, "num_misses", "num_committed"),
        hit_rate=1
        - sum(m.num_misses for m in metrics) / sum(m.num_misses + m.num_hits for m in metrics),
        shares={
            part: sum(getattr(m, part) for m in metrics) / sum(m.decode_s for m in metrics)
            for part in ("draft_s", "select_s", "stall_s", "compute_s", "commit_s")
        },
        committed_ratio=_calibration(selected, "committed"),
        misses_ratio=_calibration(selected, "misses"),
        looping_prompts=len(ours.tokens) - len(kept),
        num_runs=len({run for run, _ in ours.seconds}),
        num_prompts=len(ours.tokens),
    )


def _rate(timed: Timed) -> float:
    runs = sorted({run for run, _ in timed.seconds})
    seconds = np.array([[timed.seconds[r, p] for p in timed.tokens] for r in runs])
    return sum(timed.tokens.values()) / float(_total_s(seconds))


def _total_s(seconds: NDArray[np.float64]) -> float:
    """Return the seconds of all prompts, each by its median over runs; float64[runs, prompts].

    The median, since one run in which another process had the cores would outweigh the others.
    """
    return float(np.median(seconds, axis=0).sum())


def interval_of(ours: Timed, theirs: Timed) -> tuple[float, float, float]:
    """Return the ratio of tokens a second with its 95 % bootstrap interval.

    Prompts are drawn, then for each drawn prompt as many runs as there are; ours and theirs alike.
    """
    runs = sorted({r for r, _ in ours.seconds} & {r for r, _ in theirs.seconds})
    prompts = sorted(ours.tokens)
    a = np.array([[ours.seconds[r, p] for p in prompts] for r in runs])
    b = np.array([[theirs.seconds[r, p] for p in prompts] for r in runs])
    rng = np.random.default_rng(0)
    ratios = []
    for _ in range(2000):
        columns = rng.integers(len(prompts), size=len(prompts))
        picks = rng.integers(len(runs), size=(len(runs), len(prompts)))
        ratios.append(_total_s(b[picks, columns]) / _total_s(a[picks, columns]))
    low, high = np.quantile(ratios, (0.025, 0.975))
    return _total_s(b) / _total_s(a), float(low), float(high)


def _mean(metrics: Sequence[Metrics], over: str, under: str) -> float:
    return float(sum(getattr(m, over) for m in metrics) / sum(getattr(m, under) for m in metrics))


def _calibration(metrics: Sequence[Metrics], what: str) -> float | None:
    predicted = sum(getattr(m.calibration, f"predicted_{what}") for m in metrics)
    realised = sum(getattr(m.calibration, f"realised_{what}") for m in metrics)
    return float(predicted / realised) if predicted and realised else None


def check_text(result: DecodeResult, expected: tuple[int, ...], policy: str, cache: str) -> None:
    if result.tokens != expected:
        at = next(
            (i for i, (a, b) in enumerate(zip(result.tokens, expected, strict=False)) if a != b), -1
        )
        raise SystemExit(
            f"{policy} with {cache} differs from the stock model's text at token {at} of a prompt: "
            f"the output is not lossless."
        )


def requests_of(
    backend: TorchBackend, prompts: Path, num_tokens: int, most: int
) -> tuple[Request, ...]:
    """Take `most` prompts, evenly over the file, so that every kind of text is among them."""
    every = [prompt.text for prompt in read_prompts(prompts)]
    texts = [every[i] for i in _spread(len(every), most)]
    return tuple(
        Request(
            prompt=tuple(backend.tokenizer(text)["input_ids"]),
            max_new_tokens=num_tokens,
            stop_ids=frozenset(),
            sampling=Sampling(),
        )
        for text in texts
    )


def _spread(count: int, most: int) -> list[int]:
    """Return at most `most` of `count` indices, evenly over them."""
    most = min(most, count)
    return [i * count // most for i in range(most)]


def _report(
    rows: Sequence[Row], stock_ratio: float, bench: Bench, options: argparse.Namespace
) -> dict[str, Any]:
    return {
        "what": "live decoding, measured on the CPU; the link is emulated",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{processor()}, {os.cpu_count()} cores",
        "torch_threads": torch.get_num_threads(),
        "command": f"python -m benchmarks.decode --runs {options.runs}",
        "prompts": options.prompts.name,
        "num_prompts": len(bench.requests),
        "new_tokens": options.tokens,
        "profile": asdict(bench.profile),
        "stock_ratio": stock_ratio,
        "rows": [asdict(row) for row in rows],
    }


def processor() -> str:
    names = (
        [
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
            if line.startswith("model name")
        ]
        if Path("/proc/cpuinfo").exists()
        else []
    )
    return names[0] if names else platform.processor()


def _print_rows(rows: Sequence[Row]) -> None:
    for row in rows:
        ratio, low, high = row.speedup
        tuned_ratio, tuned_low, tuned_high = row.against_tuned
        print(
            f"{row.cache:9s} {row.policy:15s} {row.tokens_per_s:7.1f} tok/s"
            f"  x AR {ratio:.3f} [{low:.3f}, {high:.3f}]"
            f"  x tuned {tuned_ratio:.3f} [{tuned_low:.3f}, {tuned_high:.3f}]"
            f"  commit {row.committed_per_cycle:.2f} verify {row.verified_per_cycle:.2f}"
            f" levels {row.levels_per_cycle:.2f} copied {row.copied_per_token:.1f}"
            f" hits {row.hit_rate:.2f}  ceiling {row.ceiling_tokens_per_s:.1f}"
            f"  pred {row.committed_ratio or 0:.3f} {row.misses_ratio or 0:.3f}  {row.params}"
            f"  { ({k: round(v, 3) for k, v in row.shares.items()}) }",
            flush=True,
        )


def _show_progress(cache: str, run: int, prompt: int, runs: int, prompts: int) -> None:
    done = run * prompts + prompt + 1
    print(f"\r{cache}: {done}/{runs * prompts} ", end="", file=sys.stderr, flush=True)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="tiny", help="bundled model or checkpoint folder")
    parser.add_argument("--runs", type=int, default=10, help="times that every prompt is decoded")
    parser.add_argument("--default-runs", type=int, default=1, help="of the untuned EAGLE-3 tree")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens a prompt")
    parser.add_argument("--num-prompts", type=int, default=24, help="fewer with small caches")
    parser.add_argument("--prompts", type=Path, default=DATA / "prompts" / "heldout.jsonl")
    parser.add_argument("--caches", nargs="+", default=list(CACHES), choices=CACHES)
    parser.add_argument("--add", action="store_true", help="keep rows of other caches in --out")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--out", type=Path, default=RESULTS / "decode.json")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
