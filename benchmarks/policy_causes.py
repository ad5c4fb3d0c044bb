"""Why `specfit` is where it is: its parts changed one at a time, in the regret benchmark's worlds.

``python -m benchmarks.policy_causes`` replays the half to judge by under `specfit` with one thing
changed: an input that knows the truth, a setting, or deciding for free. What a change brings is
what its lack costs. The traces and fits are those of ``python -m benchmarks.policies``, in the same
folder; all speeds are *simulated*, over plain decoding in the same cell.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.policy_grid import OURS
from benchmarks.policy_replay import decoded, reader_of
from benchmarks.policy_worlds import (
    NUM_JUDGED,
    NUM_TUNED,
    WORLDS,
    inputs_of,
    machine_for,
    prepare,
    share_of_machine,
)
from specfit.cli.inputs import Inputs
from specfit.cli.manifest import manifest
from specfit.cli.specs import policy_from
from specfit.core.experts import ModelGeometry
from specfit.policies.acceptance import Identity
from specfit.policies.predictors import Uniform
from specfit.sim.metrics import measure
from specfit.sim.oracle import Oracle

PLACES = (
    *(("15%", 12e9), ("15%", 58e9), ("25%", 25e9), ("50%", 12e9)),
    *(("50%", 58e9), ("75%", 25e9), ("90%", 12e9), ("90%", 58e9)),
)
"""Resident experts, bandwidth in bytes a second: the corners and the middle of the grid."""

PLAIN = "autoregressive"


@dataclass(frozen=True)
class Change:
    """One thing that is other than by default.

    Parameters
    ----------
    name : str
        As printed.
    policy : str
        Spec.
    experts : str
        ``fitted``, ``true`` or ``uniform``: the predictor.
    acceptance : str
        ``fitted`` or ``drafted``: the drafter's own probabilities.
    pays : bool
        Whether deciding is paid for.
    """

    name: str
    policy: str = OURS
    experts: str = "fitted"
    acceptance: str = "fitted"
    pays: bool = True

    def inputs(self, fitted: Inputs, geometry: ModelGeometry) -> Inputs:
        """Return the inputs that it decides with."""
        if self.acceptance == "drafted":
            fitted = replace(fitted, acceptance=Identity())
        if self.experts == "fitted":
            return fitted
        return replace(fitted, predictor=Oracle() if self.experts == "true" else Uniform(geometry))


CHANGES = (
    Change("as it is"),
    Change("deciding costs nothing", pays=False),
    Change("true experts", experts="true"),
    Change("experts unknown: uniform", experts="uniform"),
    Change("acceptance as drafted", acceptance="drafted"),
    *(Change(f"discount {d:g}", f"{OURS}:discount={d:g}") for d in (0.0, 1.0)),
    *(Change(f"salvage {s:g}", f"{OURS}:salvage={s:g}") for s in (0.0, 0.8)),
    Change("no spare salvage", f"{OURS}:spare_salvage=0"),
    Change("all layers predicted", f"{OURS}:max_layers=1000"),
    *(Change(f"longest pause {n}", f"{OURS}:longest_pause={n}") for n in (1, 16)),
    Change("chains only", f"{OURS}:top_k=1"),
    Change("chains up to 12 deep", f"{OURS}:top_k=1,depth=12"),
    Change("decisions not priced", f"{OURS}:decision_s=0"),
    Change("misses not corrected", f"{OURS}:miss_memory=1"),
    Change("exact with true experts", "reference-experts:depth=6,top_k=2"),
    Change("exact with the truth", "reference-truth:depth=6,top_k=2"),
)


def rows_of(trace: Path) -> Iterator[dict[str, Any]]:
    """Yield one row a change: its speed over plain decoding in each place, and its cycles."""
    plain = [_replayed(trace, Change(PLAIN, PLAIN), place)[0] for place in PLACES]
    for change in CHANGES:
        found = [_replayed(trace, change, place) for place in PLACES]
        speeds = [speed / slow for (speed, _), slow in zip(found, plain, strict=True)]
        sums = {name: sum(counts[name] for _, counts in found) for name in found[0][1]}
        yield {
            "change": change.name,
            "simulated_speedups": speeds,
            "mean": float(np.exp(np.mean(np.log(speeds)))),
            "committed_per_cycle": sums["committed"] / sums["cycles"],
            "verified_per_cycle": sums["verified"] / sums["cycles"],
            "deciding_ms_per_cycle": 1e3 * sums["deciding_s"] / sums["cycles"],
        }


def _replayed(
    trace: Path, change: Change, place: tuple[str, float]
) -> tuple[float, dict[str, float]]:
    """Return the simulated tokens a second of one change in one place, and counts."""
    resident, bandwidth = place
    reader = reader_of(str(trace))
    geometry = reader.metadata.geometry
    machine = replace(machine_for(geometry), h2d_bandwidth_bytes_per_s=bandwidth)
    inputs = change.inputs(inputs_of(str(trace.parent), str(trace)), geometry)
    settings = policy_from(change.policy), inputs, f"lru:{resident}", machine
    if place == PLACES[0]:  # what is timed next is compiled
        decoded(reader, *settings, texts=1)
    policy, results = decoded(reader, *settings)
    metrics = measure(results, machine.expert_bytes)
    paid_s = policy.seconds * share_of_machine(geometry) if change.pays else 0.0
    return metrics.num_committed / (metrics.decode_s + paid_s), {
        "committed": metrics.num_committed,
        "verified": metrics.num_verified,
        "cycles": metrics.num_cycles,
        "deciding_s": policy.seconds,
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each world and change."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = [world.name for world in WORLDS]
    parser.add_argument("--worlds", nargs="+", default=names, choices=names)
    parser.add_argument("--num-prompts", type=int, default=NUM_TUNED, help="fitted on")
    parser.add_argument("--num-judged", type=int, default=NUM_JUDGED, help="prompts judged by")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens a prompt")
    parser.add_argument("--folder", type=Path, default=Path("build/policies"))
    parser.add_argument("--out", type=Path, help="file that gains a JSON line a world")
    options = parser.parse_args(arguments)
    chosen = [world for world in WORLDS if world.name in options.worlds]
    num_texts = {"train": options.num_prompts, "test": options.num_judged}
    prepare(chosen, options.folder, num_texts, options.tokens)
    for world in chosen:
        rows = []
        for row in rows_of(world.trace(options.folder, "test")):
            rows.append(row)
            cells = " ".join(f"{100 * speed:6.1f}" for speed in row["simulated_speedups"])
            print(
                f"{world.name:17s} {row['change']:26s} {cells}  mean {100 * row['mean']:6.1f}  "
                f"deciding {row['deciding_ms_per_cycle']:.2f} ms",
                flush=True,
            )
        report = {
            "what": "replays in simulated time",
            "date": datetime.now(UTC).strftime("%Y-%m-%d"),
            "num_prompts": options.num_judged,
            "new_tokens": options.tokens,
            "places": [list(place) for place in PLACES],
            "manifest": manifest(),
            "world": world.name,
            "rows": rows,
        }
        if options.out:
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
