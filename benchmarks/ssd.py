"""Experts on disk at the geometry of Qwen3-30B-A3B: a real link, on a machine without a GPU.

``python -m benchmarks.ssd`` writes packed random weights of some of the 48 layers (``--layers``; by
default as many as the disk has room for), draws `synth` texts, and decodes them forced: routing,
drafts and acceptance are the trace's, every expert is really read with direct I/O and really
computed on the CPU. The slots of a layer are what a cache of 8 or 16 GiB over 48 layers gives it.

Every policy has one setting for all texts: `specfit` its own, EAGLE-3 the tree that is fastest on
other texts of both tasks. All share one set of slots, which is nearly all the memory it takes: a
text is decoded under one policy after the other, the slots filled anew before each. The counts of
every cycle are held against the simulator's. Status 1 if a count differs.

The weights are random and no text is produced; prompts are not run, but slots hold what they would
leave; attention and drafting are not computed and take no time. So tokens a second are
those of the expert part of a model of that many layers.

The results file is written after each cache; weights and texts are removed at the end, whatever
ends it. ``--keep FOLDER`` keeps them there and finds them again. ``--add`` keeps the rows of other
caches that the results file holds from the same settings.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, nullcontext
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.ssd_decode import ALL, Decoded, PromptedBackend, decode, rotated, row_of
from benchmarks.ssd_profile import fitted, probed, simulated, tuned, unmeasured
from benchmarks.ssd_room import bank_of, check_room, layers_that_fit, say, slots_for
from benchmarks.ssd_world import Slice, fitted_inputs, sequential_bytes_per_s, write_trace
from specfit.backends.file_bank import FileBank
from specfit.backends.forced import ForcedExperts
from specfit.backends.random_bank import RandomBlocks
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
from specfit.sim.trace import TraceReader

RESULTS = Path(__file__).parent / "results" / "ssd.json"
WHAT = (
    "forced decoding, experts read from disk: seconds and bytes measured; routing, drafts and "
    "acceptance synthetic; weights random, no text; prompts, attention and drafting not computed; "
    "CPU only, not a GPU figure"
)
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
    rounds : int
        Times that each text is decoded under each policy.
    sequential : list
        Gains how fast the file is read from end to end, once a text and round.
    """

    bank: FileBank
    part: Slice
    train: Mapping[str, TraceReader]
    test: Mapping[str, TraceReader]
    inputs: Callable[[], Inputs]
    num_threads: int
    rounds: int
    sequential: list[dict[str, float]] = field(default_factory=list)

    def rows(self, cache: str, num_cycles: int) -> list[dict[str, Any]]:
        """Calibrate, tune and decode with one cache; return a row a task and policy."""
        shape = self.part.geometry
        with closing(SsdDevice(num_threads=self.num_threads)) as device:
            slots = make_cache(cache, shape, live=True)
            machine = ForcedExperts(self.bank, device, slots, self.part.hidden_size)
            blocks = RandomBlocks(self.part.shape, self.part.dtype)
            blank = unmeasured(shape.expert_bytes)
            probes = []
            for task, trace in self.train.items():
                probes += probed(PromptedBackend(trace, machine, blank, blocks), num_cycles)
                say(f"{cache}: probed on {task}")
            profile = fitted(probes, shape.expert_bytes)
            trees = tuned(self.train, cache, profile)
            say(f"{cache}: tuned, {trees.for_all}")
            policies = (PLAIN, trees.for_all, "specfit")
            for policy in policies:  # so that nothing is compiled or loaded in a measured cycle
                request = next(trace.prompts()).request
                simulated(trace, request, policy, cache, profile, self.inputs())
            inputs = {policy: self.inputs() for policy in policies}
            decoded = []
            texts = self.texts() * self.rounds
            orders = [rotated(policies, number, len(self.texts())) for number in range(len(texts))]
            for text in decode(texts, orders, machine, cache, profile, inputs, probes, blocks):
                decoded.append(text)
                say(f"{cache}: {said_of(text)} ({len(decoded)} of {3 * len(texts)})")
                if len(decoded) % 3 == 0:
                    self.read_a_layer()
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

    def read_a_layer(self) -> None:
        """Time a sequential read of a layer, another one each time."""
        layer = len(self.sequential) % self.part.num_layers
        self.sequential.append(
            sequential_bytes_per_s(self.bank, self.num_threads, range(layer, layer + 1))
        )

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


def prepared(folder: Path, part: Slice, given: argparse.Namespace) -> Bench:
    """Write what is not there yet: texts, what is fitted on them, weights."""
    texts: dict[str, dict[str, TraceReader]] = {"train": {}, "test": {}}
    sizes = {"train": given.train_prompts, "test": given.prompts}
    about = f"{part.num_layers}-layers-{given.train_prompts}-{given.prompts}-{given.tokens}"
    place = folder / "-".join([about, *given.task])
    for half, count in sizes.items():
        for task in given.task:
            texts[half][task] = write_trace(
                place / task / half, part, task, half, count, given.tokens
            )
            say(f"{half} texts of {task} written")
    inputs = fitted_inputs(list(texts["train"].values()), place / "inputs")
    say("predictor and acceptance model fitted")
    bank = bank_of(folder, part)
    return Bench(bank, part, texts["train"], texts["test"], inputs, given.threads, given.rounds)


def measure_all(folder: Path, part: Slice, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Decode; yield what is known after each cache."""
    started = time.perf_counter()
    warm_up()
    bench = prepared(folder, part, given)
    if given.only_prepare:
        return
    rows: list[dict[str, Any]] = []
    for gib in given.cache_gib:
        before = len(bench.sequential)
        found = bench.rows(f"lru:{slots_for(gib)}", given.calibration_cycles)
        reads = bench.sequential[before:]
        peak = max(np.median([read[way] for read in reads]) for way in reads[0])
        for row in found:
            rows.append(
                {"cache_gib_of_48_layers": gib, "sequential_bytes_per_s": float(peak), **row}
            )
            say(line_of(rows[-1]))
        yield {
            "what": WHAT,
            **settings_of(part, given),
            "io": bench.bank.file.io,
            "rows": rows,
            "sequential_reads_bytes_per_s": bench.sequential,
            "seconds_in_all": time.perf_counter() - started,
            "load_average_after": os.getloadavg(),
            "manifest": manifest(
                torch=torch.__version__,
                torch_threads=torch.get_num_threads(),
                machine=platform.platform(),
            ),
        }


def settings_of(part: Slice, given: argparse.Namespace) -> dict[str, Any]:
    """Return what must be equal for rows to stand in one table."""
    return {
        "layers": part.num_layers,
        "layers_of_48": part.layers.tolist(),
        "weights_bytes": part.num_bytes,
        "expert_bytes": part.geometry.expert_bytes,
        "read_threads": given.threads,
        "prompts": given.prompts,
        "rounds": given.rounds,
        "train_prompts": given.train_prompts,
        "calibration_cycles": given.calibration_cycles,
        "tokens": given.tokens,
    }


def said_of(text: Decoded) -> str:
    """Return a finished text as a line."""
    speed = text.result.num_decoded / text.result.decode_s
    return f"{text.task}, {text.policy}: {speed:.2f} tokens/s"


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


def rows_before(path: Path, settings: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows that a results file holds.

    Raises
    ------
    SystemExit
        They come from other settings.
    """
    if not path.is_file():
        return []
    before = json.loads(path.read_text("utf-8"))
    other = [key for key, value in settings.items() if before.get(key) != value]
    if other:
        raise SystemExit(f"{path} has another {other[0]}. Name another file with --out.")
    found: list[dict[str, Any]] = before["rows"]
    return found


def write(found: Mapping[str, Any], before: Sequence[dict[str, Any]], path: Path) -> None:
    """Write the results, with the rows of other caches that were there before."""
    caches = {row["cache"] for row in found["rows"]}
    rows = [*(row for row in before if row["cache"] not in caches), *found["rows"]]
    rows.sort(key=lambda row: row["cache_gib_of_48_layers"])
    unfinished = path.with_suffix(".part")
    unfinished.write_text(json.dumps({**found, "rows": rows}, indent=1) + "\n", encoding="utf-8")
    unfinished.replace(path)
    say(f"written to {path}")


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
    parser.add_argument("--rounds", type=int, default=2, help="times that each is decoded")
    parser.add_argument("--train-prompts", type=int, default=4, help="a task, to tune on")
    parser.add_argument("--tokens", type=int, default=24)
    parser.add_argument("--calibration-cycles", type=int, default=3, help="of a probe and task")
    parser.add_argument("--threads", type=int, default=NUM_THREADS, help="reads at once")
    parser.add_argument("--torch-threads", type=int, default=1, help="that compute beside them")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    """Measure, print, write the results, and remove what was written on the way."""
    given = options(arguments)
    torch.set_num_threads(given.torch_threads)
    home = given.keep or given.folder
    home.mkdir(parents=True, exist_ok=True)
    part = Slice(given.layers or layers_that_fit(home))
    check_room(part, given.cache_gib, home)
    before = rows_before(given.out, settings_of(part, given)) if given.add else []
    given.out.parent.mkdir(parents=True, exist_ok=True)
    say(
        f"{part.num_layers} of 48 layers of Qwen3-30B-A3B's geometry, random weights: "
        f"{part.num_bytes / 1e9:.1f} GB on disk"
    )
    place = (
        nullcontext(str(given.keep))
        if given.keep
        else tempfile.TemporaryDirectory(prefix="specfit-ssd-", dir=given.folder)
    )
    wrong = 0
    with place as folder:
        for found in measure_all(Path(folder), part, given):
            write(found, before, given.out)
            wrong = sum(row["cycles_that_differ_from_the_simulator"] for row in found["rows"])
            say(f"cycles that differ from the simulator: {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that its files are removed
    sys.exit(main())
