"""The paper's table on synthetic traces: `python -m benchmarks.sim.paper_table`.

Draws texts of both tasks, fits the predictor on texts of other seeds, replays EAGLE-3 without a
cache, EAGLE-3 with the cache and SpecFit with the cache, and prints the ratios beside the paper's.
All of it is simulated. `--quick` takes 2 seeds and a corner of the range.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from specfit.cli.manifest import manifest
from specfit.cli.specs import plan_from, policy_from, profile_from
from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.predictor import CoveragePredictor, predictors
from specfit.policies.acceptance import Identity
from specfit.policies.fitting.predictors import PredictorFit
from specfit.sim.observe import observed_texts
from specfit.sim.replay import replay
from specfit.sim.synth.parameters import QWEN3_30B_A3B, task_named
from specfit.sim.synth.trace import write_synthetic
from specfit.sim.trace import TraceReader

SPEC = Path(__file__).with_suffix(".toml")
RESULTS = Path(__file__).parents[1] / "results" / "paper_table.json"


@dataclass(frozen=True)
class Cell:
    """A cache and a link."""

    cache: str
    gigabytes_per_s: float


@dataclass(frozen=True)
class Replayed:
    """Simulated tokens a second of one policy on one trace."""

    tokens_per_s: float
    committed: float
    misses: float


class Table:
    """Runs the replays of a table.

    Parameters
    ----------
    spec : dict
        The TOML file.
    folder : Path
        Where traces and predictors go.
    """

    def __init__(self, spec: dict[str, Any], folder: Path) -> None:
        self.spec = spec
        self.folder = folder
        self.predictors: dict[str, CoveragePredictor] = {}

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield a row for each task, seed and cell."""
        spec = self.spec
        stated = Cell(**spec["cell"])
        others, beyond = (_cells(spec[part]) for part in ("range", "beyond"))
        for task in spec["paper"]:
            self.predictors[task] = self._fit(task)
            for number, seed in enumerate(spec["texts"]["seeds"]):
                in_range = number < spec["range"]["num_seeds"]
                more = [*others, *beyond] if in_range else []
                cells = list(dict.fromkeys([stated, *more]))
                trace = self._draw(task, seed, spec["texts"])
                for cell in cells:
                    row = self._row(task, seed, trace, cell)
                    yield {**row, "is_stated": cell == stated, "is_beyond": cell in beyond}

    def _row(self, task: str, seed: int, trace: Path, cell: Cell) -> dict[str, Any]:
        names = self.spec["policies"]
        vanilla = self._run(trace, task, names["eagle3"], "none", cell.gigabytes_per_s)
        eagle3 = self._run(trace, task, names["eagle3"], cell.cache, cell.gigabytes_per_s)
        specfit = self._run(trace, task, names["specfit"], cell.cache, cell.gigabytes_per_s)
        plain = self._run(trace, task, "autoregressive", cell.cache, cell.gigabytes_per_s)
        small = self._run(trace, task, names["small"], cell.cache, cell.gigabytes_per_s)
        bare = self._run(trace, task, names["small"], "none", cell.gigabytes_per_s)
        runs = {
            "vanilla": vanilla,
            "eagle3": eagle3,
            "specfit": specfit,
            "plain": plain,
            "small": small,
            "small_vanilla": bare,
        }
        return {
            "task": task,
            "seed": seed,
            "cache": cell.cache,
            "gigabytes_per_s": cell.gigabytes_per_s,
            "over_eagle3": specfit.tokens_per_s / eagle3.tokens_per_s,
            "over_vanilla": specfit.tokens_per_s / vanilla.tokens_per_s,
            "over_small": specfit.tokens_per_s / small.tokens_per_s,
            "over_small_vanilla": specfit.tokens_per_s / bare.tokens_per_s,
            "over_plain": specfit.tokens_per_s / plain.tokens_per_s,
            **{f"{name}_tokens_per_s": run.tokens_per_s for name, run in runs.items()},
            **{f"{name}_committed": run.committed for name, run in runs.items()},
            **{f"{name}_misses_a_token": run.misses for name, run in runs.items()},
        }

    def _run(
        self, trace: Path, task: str, policy: str, cache: str, gigabytes_per_s: float
    ) -> Replayed:
        reader = TraceReader(trace)
        geometry = reader.metadata.geometry
        profile = replace(
            profile_from(self.spec["texts"]["profile"]),
            h2d_bandwidth_bytes_per_s=gigabytes_per_s * 1e9,
        )
        results = list(
            replay(
                reader,
                policy_from(policy),
                make_cache(cache, geometry),
                profile,
                cost=ProfileCost(profile),
                predictor=self.predictors[task],
                acceptance=Identity(),
            )
        )
        tokens = sum(result.num_decoded for result in results)
        cycles = [cycle for result in results for cycle in result.cycles]
        misses = sum(int(c.outcome.verification.num_misses.sum()) for c in cycles)
        seconds = sum(result.decode_s for result in results)
        return Replayed(tokens / seconds, tokens / len(cycles), misses / tokens)

    def _draw(self, task: str, seed: int, size: dict[str, Any]) -> Path:
        folder = self.folder / f"{task}-{seed}"
        if folder.exists():
            return folder
        write_synthetic(
            folder,
            task_named(task),
            tuple(plan_from(plan) for plan in self.spec["texts"]["plans"]),
            seed=seed,
            num_prompts=size["num_prompts"],
            max_new_tokens=size["max_new_tokens"],
        )
        return folder

    def _fit(self, task: str) -> CoveragePredictor:
        size = self.spec["predictor"]
        folder = self.folder / f"{task}-predictor"
        if folder.exists():
            return predictors.build(size["kind"], {"folder": str(folder)})
        reader = TraceReader(self._draw(task, size["seed"], size))
        fit = PredictorFit(
            list(observed_texts(reader)),
            QWEN3_30B_A3B,
            "synthetic",
            {"task": task, "seed": size["seed"]},
            size["max_nodes"],
        )
        return fit.write(size["kind"], folder)


def _cells(part: dict[str, Any]) -> list[Cell]:
    return [Cell(cache, rate) for cache in part["caches"] for rate in part["gigabytes_per_s"]]


def summary(rows: list[dict[str, Any]], paper: dict[str, list[float]]) -> str:
    """Return the table in Markdown."""
    lines = [
        "| task | SpecFit over | paper | stated cell, median of seeds | its range | range over "
        "caches and links | larger caches |",
        "|---|---|---|---|---|---|---|",
    ]
    for task, printed in paper.items():
        mine = [row for row in rows if row["task"] == task]
        stated = [row for row in mine if row["is_stated"]]
        for name, key, figure in (
            ("EAGLE-3 with the cache", "over_eagle3", printed[0]),
            ("EAGLE-3 without a cache", "over_vanilla", printed[1]),
            ("a small EAGLE-3 tree with the cache", "over_small", None),
            ("a small EAGLE-3 tree without a cache", "over_small_vanilla", None),
            ("plain decoding with the cache", "over_plain", None),
        ):
            at, all_of = [r[key] for r in stated], [r[key] for r in mine if not r["is_beyond"]]
            lines.append(
                f"| {task} | {name} | {figure or '-'} | {np.median(at):.2f} | "
                f"{min(at):.2f}-{max(at):.2f} | {min(all_of):.2f}-{max(all_of):.2f} | "
                f"{', '.join(f'{r[key]:.2f}' for r in mine if r['is_beyond'])} |"
            )
    return "\n".join(lines)


def main() -> None:
    """Run the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="2 seeds and a corner of the range")
    parser.add_argument("--work", type=Path, help="folder for traces and predictors, kept")
    parser.add_argument("--out", type=Path, help="JSON file for the rows")
    options = parser.parse_args()
    spec = tomllib.loads(SPEC.read_text(encoding="utf-8"))
    if options.quick:
        spec["texts"] |= {"seeds": [0, 1], "num_prompts": 1, "max_new_tokens": 24}
        spec["predictor"] |= {"num_prompts": 3, "max_new_tokens": 16, "max_nodes": 1500}
        spec["range"] |= {"caches": ["lru:15%", "lru:50%"], "gigabytes_per_s": [25]}
    rows = []
    with tempfile.TemporaryDirectory() as temporary:
        for row in Table(spec, options.work or Path(temporary)).rows():
            rows.append(row)
            print(json.dumps(row), file=sys.stderr, flush=True)
            if options.out is not None:
                table = {"simulated": True, "spec": spec, "manifest": manifest(), "rows": rows}
                options.out.write_text(json.dumps(table, indent=1) + "\n", encoding="utf-8")
    print(summary(rows, spec["paper"]))
    print("\nSimulated, on synthetic traces of Qwen3-30B-A3B.")


if __name__ == "__main__":
    main()
