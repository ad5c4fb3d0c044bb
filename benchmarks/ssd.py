"""Experts on disk at the geometry of Qwen3-30B-A3B: a real link, on a machine without a GPU.

``python -m benchmarks.ssd`` writes packed random weights of as many of the 48 layers as the disk
has room for (``--layers`` for fewer), draws `synth` texts, and decodes them forced: routing, drafts
and acceptance are the trace's, every expert is really read with direct I/O and really computed on
the CPU. The slots of a layer are what a cache of 8 or 16 GiB over 48 layers gives it. It tunes
EAGLE-3 and calibrates on other texts, holds the counts of every cycle against the simulator's,
prints and writes the table, and removes its files. Status 1 if a count differs.

The weights are random and no text is produced; attention and drafting are not computed and take no
time. So tokens a second are those of the expert part of a model of that many layers.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.ssd_profile import PROBES, calibrated, simulated, tuned, unmeasured
from benchmarks.ssd_world import (
    Slice,
    fitted_inputs,
    sequential_bytes_per_s,
    write_trace,
)
from specfit.backends.device import LinkCounters
from specfit.backends.file_bank import FileBank
from specfit.backends.forced import ForcedExperts
from specfit.backends.random_bank import write_bank
from specfit.backends.ssd import NUM_THREADS, SsdDevice
from specfit.cli.inputs import Inputs
from specfit.cli.manifest import manifest
from specfit.cli.specs import policy_from
from specfit.core.backend import Prefill, Request
from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeLoop, DecodeResult, Observer
from specfit.core.profile import HardwareProfile
from specfit.core.search import warm_up
from specfit.sim.forced_backend import ForcedBackend
from specfit.sim.metrics import measure
from specfit.sim.synth.parameters import QWEN3_30B_A3B
from specfit.sim.trace import TraceReader

RESULTS = Path(__file__).parent / "results" / "ssd.json"
GIB = 2**30
SPARE_BYTES = 8 * GIB
"""Of the disk, left free."""
COUNTS = ("num_hits", "num_misses", "num_evictions")


@dataclass
class DecodeCounters(Observer):
    """What went over the link while decoding, prefill left out."""

    counters: LinkCounters
    total: LinkCounters = field(default_factory=LinkCounters)
    _before: LinkCounters = field(default_factory=LinkCounters)

    def on_start(self, request: Request, prefill: Prefill) -> None:
        """Take note of where the link's counters stand."""
        self._before = replace(self.counters)

    def on_end(self, tokens: tuple[int, ...], stop_reason: str) -> None:
        """Add what the text took."""
        for name, now in asdict(self.counters).items():
            more = now - getattr(self._before, name)
            setattr(self.total, name, getattr(self.total, name) + more)


@dataclass(frozen=True)
class Bench:
    """One task on one bank.

    Parameters
    ----------
    bank : FileBank
        The weights.
    part : Slice
        Their shape.
    train, test : TraceReader
        Texts to tune and to measure on.
    inputs : callable
        Makes a fresh predictor and acceptance model.
    num_threads : int
        Reads at once.
    """

    bank: FileBank
    part: Slice
    train: TraceReader
    test: TraceReader
    inputs: Callable[[], Inputs]
    num_threads: int

    def rows(self, cache: str, num_cycles: int) -> list[dict[str, Any]]:
        """Calibrate, tune and decode with one cache; return a row a policy."""
        device = SsdDevice(num_threads=self.num_threads)
        shape = self.part.geometry
        passes = ForcedExperts(
            self.bank, device, make_cache(cache, shape, live=True), self.part.hidden_size
        )
        try:
            blank = unmeasured(shape.expert_bytes)
            profile = calibrated(
                (ForcedBackend(self.train, passes, blank) for _ in PROBES), num_cycles
            )
            best = tuned(self.train, cache, profile)
            policies = ("autoregressive", best, "specfit")
            inputs = [self.inputs() for _ in policies]
            watches = [DecodeCounters(device.counters) for _ in policies]
            runs = decode(self.test, passes, profile, policies, inputs, watches)
            return [
                self._row(cache, profile, policy, results, watch.total)
                for policy, results, watch in zip(policies, runs, watches, strict=True)
            ]
        finally:
            device.close()

    def _row(
        self,
        cache: str,
        profile: HardwareProfile,
        policy: str,
        results: Sequence[DecodeResult],
        link: LinkCounters,
    ) -> dict[str, Any]:
        again = simulated(self.test, policy, cache, profile, self.inputs())
        metrics = measure(results, profile.expert_bytes)
        measured = np.array([c.timings.cycle_s for r in results for c in r.cycles])
        select_s = sum(c.timings.select_s for r in results for c in r.cycles)
        predicted = np.array([c.timings.cycle_s for r in again for c in r.cycles])
        wrong = differing_cycles(results, again)
        errors = np.abs(predicted / measured - 1) if not wrong else np.array([np.nan])
        return {
            "cache": cache,
            "policy": policy,
            "tokens_per_s": metrics.tokens_per_s,
            "committed_per_cycle": metrics.num_committed / metrics.num_cycles,
            "cycles": metrics.num_cycles,
            "read_bytes_per_token": link.num_bytes / metrics.num_committed,
            "read_bytes_per_s": link.num_bytes / link.busy_s if link.busy_s else 0.0,
            "stall_share": link.stall_s / float(measured.sum()),
            "select_share": select_s / float(measured.sum()),
            "measured_cycle_s": float(measured.mean()),
            "predicted_cycle_s": float(predicted.mean()),
            "cycle_error_median": float(np.median(errors)),
            "cycle_error_p95": float(np.quantile(errors, 0.95)),
            "cycles_that_differ_from_the_simulator": wrong,
            "profile": asdict(profile),
        }


def decode(
    trace: TraceReader,
    passes: ForcedExperts,
    profile: HardwareProfile,
    policies: Sequence[str],
    inputs: Sequence[Inputs],
    watches: Sequence[DecodeCounters],
) -> list[list[DecodeResult]]:
    """Decode a trace under each policy, by turns on each text; return the results by policy."""
    backends = [ForcedBackend(trace, passes, profile) for _ in policies]
    loops = [
        DecodeLoop(
            backend,
            policy_from(policy),
            ProfileCost(profile),
            given.predictor,
            given.acceptance,
            observers=[watch],
        )
        for backend, policy, given, watch in zip(backends, policies, inputs, watches, strict=True)
    ]
    results: list[list[DecodeResult]] = [[] for _ in policies]
    for requests in zip(*(backend.requests() for backend in backends), strict=True):
        for loop, request, found in zip(loops, requests, results, strict=True):
            found.append(loop.run(request))
    return results


def differing_cycles(ours: Sequence[DecodeResult], theirs: Sequence[DecodeResult]) -> int:
    """Return how many cycles have another selection or other counts than the simulator's."""
    wrong = 0
    for a, b in zip(ours, theirs, strict=True):
        wrong += abs(len(a.cycles) - len(b.cycles))
        for x, y in zip(a.cycles, b.cycles, strict=False):
            pairs = [(getattr(v, n), getattr(w, n)) for n in COUNTS for v, w in [_answers(x, y)]]
            pairs.append((x.outcome.selection.nodes, y.outcome.selection.nodes))
            wrong += not all(np.array_equal(p, q) for p, q in pairs)
    return wrong


def _answers(x: Any, y: Any) -> tuple[Any, Any]:
    return x.outcome.verification, y.outcome.verification


def slots_for(gib: float) -> int:
    """Return the slots of a layer when all 48 share a cache of this size in bf16."""
    return int(gib * GIB // (QWEN3_30B_A3B.num_layers * QWEN3_30B_A3B.expert_bytes))


def layers_that_fit(folder: Path) -> int:
    """Return how many layers the disk has room for, at most all."""
    room = shutil.disk_usage(folder).free - SPARE_BYTES
    layers = min(QWEN3_30B_A3B.num_layers, room // Slice(1).num_bytes)
    if layers < 1:
        raise SystemExit(f"a layer needs {Slice(1).num_bytes / GIB:.1f} GiB and 8 GiB stay free.")
    return int(layers)


def measure_all(folder: Path, part: Slice, given: argparse.Namespace) -> dict[str, Any]:
    """Write, decode and return everything."""
    warm_up()
    bank = write_bank(folder / "experts.bin", part.shape, part.dtype)
    speeds = sequential_bytes_per_s(bank, given.threads)
    rows = []
    for task in given.task:
        place = folder / task
        place.mkdir()
        train = write_trace(place / "train", part, task, "train", given.train_prompts, given.tokens)
        test = write_trace(place / "test", part, task, "test", given.prompts, given.tokens)
        inputs = fitted_inputs(train, place / "inputs")
        bench = Bench(bank, part, train, test, inputs, given.threads)
        for gib in given.cache_gib:
            for row in bench.rows(f"lru:{slots_for(gib)}", given.calibration_cycles):
                rows.append({"task": task, "cache_gib_of_48_layers": gib, **row})
                print(line_of(rows[-1], max(speeds.values())), flush=True)
    return {
        "what": (
            "forced decoding, experts read from disk: seconds and bytes measured; routing, drafts "
            "and acceptance synthetic; weights random, no text; attention and drafting not "
            "computed; CPU only, not a GPU figure"
        ),
        "layers": part.num_layers,
        "layers_of_48": part.layers.tolist(),
        "weights_bytes": part.num_bytes,
        "expert_bytes": part.geometry.expert_bytes,
        "io": bank.file.io,
        "read_threads": given.threads,
        "sequential_bytes_per_s": speeds,
        "prompts": given.prompts,
        "train_prompts": given.train_prompts,
        "calibration_cycles": given.calibration_cycles,
        "tokens": given.tokens,
        "rows": rows,
        "load_average_after": os.getloadavg(),
        "manifest": manifest(
            torch=torch.__version__,
            torch_threads=torch.get_num_threads(),
            machine=platform.platform(),
        ),
    }


def line_of(row: dict[str, Any], peak: float) -> str:
    """Return a row as a line."""
    return (
        f"{row['task']}, {row['cache_gib_of_48_layers']:g} GiB of 48 layers ({row['cache']}), "
        f"{row['policy']}: {row['tokens_per_s']:.2f} tokens/s, "
        f"{row['committed_per_cycle']:.2f} tokens a cycle, "
        f"{row['read_bytes_per_token'] / 1e6:.0f} MB read a token at "
        f"{row['read_bytes_per_s'] / 1e9:.2f} GB/s = {row['read_bytes_per_s'] / peak:.2f} of "
        f"sequential; cycle {row['measured_cycle_s'] * 1e3:.0f} ms measured, "
        f"{row['predicted_cycle_s'] * 1e3:.0f} ms predicted, error median "
        f"{row['cycle_error_median']:.1%}; stall {row['stall_share']:.0%}, selecting "
        f"{row['select_share']:.0%}; cycles that differ from the simulator: "
        f"{row['cycles_that_differ_from_the_simulator']}"
    )


def options(arguments: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(), help="on the disk to be measured")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--task", nargs="+", default=["gsm8k", "cnn-dm"])
    parser.add_argument("--cache-gib", nargs="+", type=float, default=[8, 16])
    parser.add_argument("--prompts", type=int, default=3)
    parser.add_argument("--train-prompts", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--calibration-cycles", type=int, default=12)
    parser.add_argument("--threads", type=int, default=NUM_THREADS, help="reads at once")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args(arguments)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, print, write the results, and remove what was written on the way."""
    given = options(arguments)
    part = Slice(given.layers or layers_that_fit(given.folder))
    print(
        f"{part.num_layers} of 48 layers of Qwen3-30B-A3B's geometry, random weights: "
        f"{part.num_bytes / 1e9:.1f} GB on disk"
    )
    with tempfile.TemporaryDirectory(prefix="specfit-ssd-", dir=given.folder) as folder:
        found = measure_all(Path(folder), part, given)
    speeds = found["sequential_bytes_per_s"].items()
    said = ", ".join(f"{name} {speed / 1e9:.2f} GB/s" for name, speed in speeds)
    print(f"sequential read: {said}; {found['io']} I/O")
    given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    wrong = sum(row["cycles_that_differ_from_the_simulator"] for row in found["rows"])
    print(f"cycles that differ from the simulator: {wrong}; written to {given.out}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
