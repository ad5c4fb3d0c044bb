"""What copying ahead is worth while decoding: the bundled model behind an *emulated* link.

``python -m benchmarks.prefetch`` decodes held-out prompts with each prefetcher and without one,
interleaved by prompt, and compares every text with the stock model's. The link is emulated as in
`benchmarks.decode`.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from benchmarks.decode import (
    DATA,
    RESULTS,
    Bench,
    Timed,
    check_text,
    interval_of,
    processor,
    requests_of,
)
from specfit.backends import load
from specfit.backends.calibrate import calibrate, pcie4_link
from specfit.backends.reference import StockModel
from specfit.cli.manifest import manifest
from specfit.core.policy import Policy
from specfit.core.prefetch import PredictedUnion, Prefetcher, PreviousToken
from specfit.core.search import warm_up
from specfit.policies import Autoregressive, SpecFit

CACHES = ("lru:50%", "lru:75%")
PREFETCHERS: dict[str, Prefetcher | None] = {
    "none": None,
    "previous": PreviousToken(),
    "predicted:min_prob=0.5": PredictedUnion(0.5),
    "predicted:min_prob=0.8": PredictedUnion(0.8),
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the benchmark and write its results."""
    options = _options(arguments)
    warm_up()
    backend = load("tiny", cache="lru:100%", threads=1)
    backend.set_link(pcie4_link(calibrate(backend), backend.geometry))
    prompts = DATA / "prompts" / "heldout.jsonl"
    requests = requests_of(backend, prompts, options.tokens, options.num_prompts)
    stock = StockModel(backend.checkpoint.folder)
    bench = Bench(backend, calibrate(backend), requests, tuple(map(stock.generate, requests)))
    policies = {"autoregressive": Autoregressive(), "specfit": SpecFit()}
    rows = [
        row
        for cache, (name, policy) in itertools.product(CACHES, policies.items())
        for row in _rows(bench, cache, name, policy, options.runs)
    ]
    report = {
        "what": "decoding with copies made ahead, on the CPU; the link is emulated",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{processor()}, {os.cpu_count()} cores",
        "command": f"python -m benchmarks.prefetch --runs {options.runs} "
        f"--num-prompts {options.num_prompts} --tokens {options.tokens}",
        "num_prompts": len(requests),
        "new_tokens": options.tokens,
        "rows": rows,
        "manifest": manifest(torch=torch.__version__),
    }
    options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _rows(bench: Bench, cache: str, name: str, policy: Policy, runs: int) -> list[dict[str, Any]]:
    """Time one policy with every prefetcher, interleaved by prompt."""
    bench.backend.set_cache(cache)
    loops = {spec: bench.loop(policy, prefetcher) for spec, prefetcher in PREFETCHERS.items()}
    timed: dict[str, Timed] = defaultdict(Timed)
    specs = list(loops)
    for run, prompt in itertools.product(range(runs), range(len(bench.requests))):
        turn = (run + prompt) % len(specs)
        for spec in specs[turn:] + specs[:turn]:
            result = loops[spec].run(bench.requests[prompt])
            check_text(result, bench.expected[prompt], f"{name}, {spec}", cache)
            timed[spec].add(run, prompt, result, bench.backend.geometry.expert_bytes)
    return [_row(cache, name, spec, timed) for spec in specs]


def _row(cache: str, name: str, spec: str, timed: dict[str, Timed]) -> dict[str, Any]:
    metrics = list(timed[spec].metrics.values())
    committed = sum(m.num_committed for m in metrics)
    row = {
        "cache": cache,
        "policy": name,
        "prefetch": spec,
        "over_none": interval_of(timed[spec], timed["none"]),
        "copied_per_token": sum(m.num_misses + m.num_prefetched for m in metrics) / committed,
        "ahead_per_token": sum(m.num_prefetched for m in metrics) / committed,
        "wasted_per_token": sum(m.num_wasted for m in metrics) / committed,
        "stall_share": sum(m.stall_s for m in metrics) / sum(m.decode_s for m in metrics),
    }
    print(row, flush=True)
    return row


def block(report: dict[str, Any]) -> str:
    """Return the table for the page, and what one must know to read it; see `benchmarks.pages`."""
    lines = [
        f"Measured {report['date']} on {report['machine']}, over an *emulated* link; the bundled",
        f"model, {report['num_prompts']} held-out prompts, {report['new_tokens']} tokens each,",
        f"`{report['command']}`. Speed over decoding without, and its 95 % interval:",
        "",
        "| cache | policy | `--prefetch` | speed | copied a token | of them ahead | for nothing |",
        "|---|---|---|--:|--:|--:|--:|",
    ]
    for row in report["rows"]:
        ratio, low, high = row["over_none"]
        if row["prefetch"] != "none":
            lines.append(
                f"| `{row['cache']}` | {row['policy']} | `{row['prefetch']}` "
                f"| {ratio:.2f} [{low:.2f}, {high:.2f}] | {row['copied_per_token']:.1f} "
                f"| {row['ahead_per_token']:.1f} | {row['wasted_per_token']:.1f} |"
            )
    return "\n".join(lines)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=4, help="times that every prompt is decoded")
    parser.add_argument("--tokens", type=int, default=32, help="new tokens a prompt")
    parser.add_argument("--num-prompts", type=int, default=6)
    parser.add_argument("--out", type=Path, default=RESULTS / "prefetch.json")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
