"""Experts on disk at the geometry of Qwen3-30B-A3B: a real link, on a machine without a GPU.

``python -m benchmarks.ssd`` writes packed random weights of some of the 48 layers (``--layers``; by
default as many as the disk has room for), draws `synth` texts, and decodes them forced: routing,
drafts and acceptance are the trace's, every expert is really read with direct I/O and really
computed on the CPU. The slots of a layer are what a cache of 8 or 16 GiB over 48 layers gives it.

Every policy has one setting for all texts: `specfit` its own, EAGLE-3 the tree that is fastest on
other texts of both tasks. The policies decode a text at the same time, cycle by cycle by turns,
each with slots of its own. The counts of every cycle are held against the simulator's. Status 1 if
a count differs.

The weights are random and no text is produced; prompts are not run, but slots hold what they would
leave; attention and drafting are not computed and take no time. So tokens a second are
those of the expert part of a model of that many layers.

``--keep FOLDER`` keeps the weights and the texts there and finds them again. ``--add`` keeps the
rows of other caches that the results file holds from the same settings.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.ssd_decode import ALL, Decoded, PromptedBackend, decode, row_of
from benchmarks.ssd_profile import PROBES, fitted, probed, simulated, tuned, unmeasured
from benchmarks.ssd_world import Slice, fitted_inputs, sequential_bytes_per_s, write_trace
from specfit.backends.file_bank import FileBank
from specfit.backends.forced import ForcedExperts
from specfit.backends.random_bank import RandomBlocks, write_bank
from specfit.backends.ssd import NUM_THREADS, SsdDevice
from specfit.cli.inputs import Inputs
from specfit.cli.manifest import manifest
from specfit.core.backend import Request
from specfit.core.cache import make_cache
from specfit.core.profile import HardwareProfile
from specfit.core.search import warm_up
from specfit.policies.acceptance.identity import Identity
from specfit.policies.predictors.uniform import Uniform
from specfit.sim.metrics import measure
from specfit.sim.synth.parameters import QWEN3_30B_A3B
from specfit.sim.trace import TraceReader

RESULTS = Path(__file__).parent / "results" / "ssd.json"
GIB = 2**30
SPARE_BYTES = 12 * GIB
"""Of the disk, left free."""
PLAIN = "autoregressive"


@dataclass(frozen=True)
class Bench:
    """The texts of some tasks on one bank.

    Parameters
    ----------
    bank : FileBank
        The weights.
    part : Slice
        Their shape.
    train, test : dict
        Texts to tune and to measure on, by task.
    inputs : callable
        Makes a fresh predictor and acceptance model.
    num_threads : int
        Reads at once.
    """

    bank: FileBank
    part: Slice
    train: Mapping[str, TraceReader]
    test: Mapping[str, TraceReader]
    inputs: Callable[[], Inputs]
    num_threads: int

    def rows(self, cache: str, num_cycles: int) -> list[dict[str, Any]]:
        """Calibrate, tune and decode with one cache; return a row a task and policy."""
        shape = self.part.geometry
        machines = [self.machine(cache) for _ in PROBES]  # as many as policies
        try:
            blocks = RandomBlocks(self.part.shape, self.part.dtype)
            blank = unmeasured(shape.expert_bytes)
            probes = [
                record
                for trace in self.train.values()
                for record in probed(
                    (PromptedBackend(trace, machine, blank, blocks) for machine in machines),
                    num_cycles,
                )
            ]
            profile = fitted(probes, shape.expert_bytes)
            trees = tuned(self.train, cache, profile)
            policies = (PLAIN, trees.for_all, "specfit")
            decoded = []
            for text in decode(
                self.texts(),
                dict(zip(policies, machines, strict=True)),
                cache,
                profile,
                {policy: self.inputs() for policy in policies},
                probes,
                blocks,
            ):
                print(said_of(text), flush=True)
                decoded.append(text)
        finally:
            for machine in machines:
                machine.device.close()
        apart = {
            task: self.simulated(task, trees.apart[task], cache, profile) for task in self.test
        }
        return [
            {
                "task": task,
                "cache": cache,
                "policy": policy,
                **row_of(chosen(decoded, task, policy), shape.expert_bytes),
                "tree_of_this_task_alone": trees.apart.get(task),
                "its_simulated_tokens_per_s": apart.get(task),
                "first_profile": asdict(profile),
            }
            for task in (*self.test, ALL)
            for policy in policies
        ]

    def machine(self, cache: str) -> ForcedExperts:
        """Return slots of their own over the weights."""
        slots = make_cache(cache, self.part.geometry, live=True)
        device = SsdDevice(num_threads=self.num_threads)
        return ForcedExperts(self.bank, device, slots, self.part.hidden_size)

    def texts(self) -> list[tuple[str, TraceReader, Request]]:
        """Return the texts to measure on, the tasks by turns."""
        by_task = [
            [(task, trace, prompt.request) for prompt in trace.prompts()]
            for task, trace in self.test.items()
        ]
        return [text for texts in zip(*by_task, strict=True) for text in texts]

    def simulated(self, task: str, policy: str, cache: str, profile: HardwareProfile) -> float:
        """Return the simulated tokens a second on the texts of a task."""
        trace, blind = self.test[task], Inputs(Uniform(self.part.geometry), Identity())
        results = [
            simulated(trace, prompt.request, policy, cache, profile, blind)
            for prompt in trace.prompts()
        ]
        return measure(results, profile.expert_bytes).tokens_per_s


def chosen(decoded: list[Decoded], task: str, policy: str) -> list[Decoded]:
    """Return the texts of a task, or of all, under a policy."""
    return [d for d in decoded if d.policy == policy and task in (d.task, ALL)]


def slots_for(gib: float) -> int:
    """Return the slots of a layer when all 48 share a cache of this size in bf16."""
    return int(gib * GIB // (QWEN3_30B_A3B.num_layers * QWEN3_30B_A3B.expert_bytes))


def layers_that_fit(folder: Path) -> int:
    """Return how many layers the disk has room for, at most all."""
    room = shutil.disk_usage(folder).free - SPARE_BYTES
    layers = min(QWEN3_30B_A3B.num_layers, room // Slice(1).num_bytes)
    if layers < 1:
        raise SystemExit(
            f"a layer needs {Slice(1).num_bytes / GIB:.1f} GiB and "
            f"{SPARE_BYTES / GIB:.0f} GiB stay free."
        )
    return int(layers)


def bank_of(folder: Path, part: Slice) -> FileBank:
    """Return the weights in a folder, written now if they are not there."""
    path = folder / "experts.bin"
    if path.is_file() and path.stat().st_size == part.num_bytes:
        return FileBank.open(path, part.shape, part.dtype)
    started = time.perf_counter()
    bank = write_bank(path, part.shape, part.dtype)
    speed = part.num_bytes / (time.perf_counter() - started)
    print(f"weights written at {speed / 1e9:.2f} GB/s", flush=True)
    return bank


def measure_all(folder: Path, part: Slice, given: argparse.Namespace) -> dict[str, Any]:
    """Write, decode and return everything."""
    started = time.perf_counter()
    warm_up()
    bank = bank_of(folder, part)
    tasks, tokens = given.task, given.tokens
    train = {
        task: write_trace(folder / task / "train", part, task, "train", given.train_prompts, tokens)
        for task in tasks
    }
    test = {
        task: write_trace(folder / task / "test", part, task, "test", given.prompts, tokens)
        for task in tasks
    }
    inputs = fitted_inputs(list(train.values()), folder / "inputs")
    if given.only_prepare:
        return {"rows": []}
    bench = Bench(bank, part, train, test, inputs, given.threads)
    rows, read_speeds = [], []
    for gib in given.cache_gib:
        read_speeds.append(sequential_bytes_per_s(bank, given.threads, a_few_layers(part)))
        found = bench.rows(f"lru:{slots_for(gib)}", given.calibration_cycles)
        read_speeds.append(sequential_bytes_per_s(bank, given.threads, a_few_layers(part)))
        peak = max(np.median([s[name] for s in read_speeds[-2:]]) for name in read_speeds[0])
        for row in found:
            rows.append(
                {"cache_gib_of_48_layers": gib, "sequential_bytes_per_s": float(peak), **row}
            )
            print(line_of(rows[-1]), flush=True)
    return {
        "what": (
            "forced decoding, experts read from disk: seconds and bytes measured; routing, drafts "
            "and acceptance synthetic; weights random, no text; prompts, attention and drafting "
            "not computed; CPU only, not a GPU figure"
        ),
        **settings_of(part, given),
        "io": bank.file.io,
        "rows": rows,
        "sequential_reads_bytes_per_s": read_speeds,
        "seconds_in_all": time.perf_counter() - started,
        "load_average_after": os.getloadavg(),
        "manifest": manifest(
            torch=torch.__version__,
            torch_threads=torch.get_num_threads(),
            machine=platform.platform(),
        ),
    }


def a_few_layers(part: Slice) -> range:
    """Return layers from the middle, so many that reading them takes a second or more."""
    few = min(2, part.num_layers)
    return range((part.num_layers - few) // 2, (part.num_layers + few) // 2)


def settings_of(part: Slice, given: argparse.Namespace) -> dict[str, Any]:
    """Return what must be equal for rows to stand in one table."""
    return {
        "layers": part.num_layers,
        "layers_of_48": part.layers.tolist(),
        "weights_bytes": part.num_bytes,
        "expert_bytes": part.geometry.expert_bytes,
        "read_threads": given.threads,
        "prompts": given.prompts,
        "train_prompts": given.train_prompts,
        "calibration_cycles": given.calibration_cycles,
        "tokens": given.tokens,
    }


def said_of(text: Decoded) -> str:
    """Return a finished text as a line."""
    speed = text.result.num_decoded / text.result.decode_s
    return f"  {text.task}, {text.policy}: {speed:.2f} tokens/s"


def line_of(row: dict[str, Any]) -> str:
    """Return a row as a line."""
    return (
        f"{row['task']}, {row['cache_gib_of_48_layers']:g} GiB of 48 layers ({row['cache']}), "
        f"{row['policy']}: {row['tokens_per_s']:.2f} tokens/s, "
        f"{row['tokens_per_s_without_hiccups']:.2f} without {row['hiccups']} hiccups, "
        f"{row['committed_per_cycle']:.2f} tokens a cycle, "
        f"{row['read_bytes_per_token'] / 1e6:.0f} MB read a token at "
        f"{row['read_bytes_per_s'] / 1e9:.2f} GB/s = "
        f"{row['read_bytes_per_s'] / row['sequential_bytes_per_s']:.2f} of "
        f"sequential; cycle {row['measured_cycle_s'] * 1e3:.0f} ms measured, "
        f"{row['predicted_cycle_s'] * 1e3:.0f} ms predicted, error median "
        f"{row['cycle_error_median']:.1%}; stall {row['stall_share']:.0%}, selecting "
        f"{row['select_share']:.1%}; cycles that differ from the simulator: "
        f"{row['cycles_that_differ_from_the_simulator']}"
    )


def added(found: dict[str, Any], path: Path) -> dict[str, Any]:
    """Return what was found, with the rows of other caches that a results file holds.

    Raises
    ------
    SystemExit
        They come from other settings.
    """
    if not path.is_file():
        return found
    before = json.loads(path.read_text("utf-8"))
    same = [key for key in found if key in ("layers", "prompts", "tokens", "train_prompts")]
    if any(before.get(key) != found[key] for key in same):
        raise SystemExit(f"{path} comes from other settings. Name another file with --out.")
    caches = {row["cache"] for row in found["rows"]}
    kept = [row for row in before["rows"] if row["cache"] not in caches]
    return {
        **found,
        "rows": sorted([*kept, *found["rows"]], key=lambda row: row["cache_gib_of_48_layers"]),
        "seconds_in_all": before["seconds_in_all"] + found["seconds_in_all"],
    }


def options(arguments: list[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path(), help="on the disk to be measured")
    parser.add_argument("--keep", type=Path, help="folder of weights and texts, kept")
    parser.add_argument("--only-prepare", action="store_true", help="write them and stop")
    parser.add_argument("--add", action="store_true", help="keep rows of other caches in --out")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--task", nargs="+", default=["gsm8k", "cnn-dm"])
    parser.add_argument("--cache-gib", nargs="+", type=float, default=[8, 16])
    parser.add_argument("--prompts", type=int, default=3, help="a task, to measure on")
    parser.add_argument("--train-prompts", type=int, default=6, help="a task, to tune on")
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--calibration-cycles", type=int, default=3, help="of a probe and task")
    parser.add_argument("--threads", type=int, default=NUM_THREADS, help="reads at once")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write the results, and remove what was written on the way."""
    given = options(arguments)
    part = Slice(given.layers or layers_that_fit(given.keep or given.folder))
    print(
        f"{part.num_layers} of 48 layers of Qwen3-30B-A3B's geometry, random weights: "
        f"{part.num_bytes / 1e9:.1f} GB on disk"
    )
    if given.keep:
        given.keep.mkdir(parents=True, exist_ok=True)
    place = (
        nullcontext(str(given.keep))
        if given.keep
        else tempfile.TemporaryDirectory(prefix="specfit-ssd-", dir=given.folder)
    )
    with place as folder:
        found = measure_all(Path(folder), part, given)
    if given.only_prepare:
        return 0
    if given.add:
        found = added(found, given.out)
    given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    wrong = sum(row["cycles_that_differ_from_the_simulator"] for row in found["rows"])
    print(f"cycles that differ from the simulator: {wrong}; written to {given.out}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
