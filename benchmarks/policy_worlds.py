"""The texts that policies are compared on: each has a half to tune on and a half to judge by."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

import joblib
import numpy as np

from benchmarks.policy_grid import PLANS
from specfit.cli.inputs import Inputs, inputs_of_trace
from specfit.cli.specs import profile_from
from specfit.core.experts import ModelGeometry
from specfit.core.predictor import predictors
from specfit.core.profile import HardwareProfile
from specfit.data import ESFT_ROUTING
from specfit.policies.acceptance.adaptive import Adaptive
from specfit.policies.fitting.calibration import AcceptanceFit
from specfit.policies.fitting.predictors import PredictorFit
from specfit.policies.fitting.samples import acceptance_sample
from specfit.sim.importers import esft
from specfit.sim.importers.imported import ImportOptions
from specfit.sim.observe import observed_texts
from specfit.sim.synth.parameters import QWEN3_30B_A3B, task_named
from specfit.sim.synth.trace import write_synthetic
from specfit.sim.trace import TraceReader

DATA = Path(__file__).parents[1] / "specfit" / "data"
HALVES = ("train", "test")
NUM_TUNED, NUM_JUDGED = 4, 12
"""Texts of a half unless it is said; those who share a folder must agree."""

MACHINE = "pcie4-x16"
"""Shipped profile of the compute; the cell sets the bandwidth of the link."""
LAYERS = QWEN3_30B_A3B.num_layers
MOST_NODES = 8_000
"""Nodes that a predictor is fitted on at most: memory grows with them."""


def share_of_machine(geometry: ModelGeometry) -> float:
    """Return how much of Qwen3-30B-A3B a model of this many layers stands for."""
    return geometry.num_layers / LAYERS


def machine_for(geometry: ModelGeometry) -> HardwareProfile:
    """Return the machine with a pass as long as the model is deep.

    Every expert counts as one of Qwen3-30B-A3B, so that a copy takes, relative to compute, what it
    takes there; a smaller model is a slice of that one.
    """
    machine, part = profile_from(MACHINE), share_of_machine(geometry)
    return replace(
        machine,
        first_level_s=machine.first_level_s * part,
        level_s=machine.level_s * part,
        verify_fixed_s=machine.verify_fixed_s * part,
        verify_node_s=machine.verify_node_s * part,
    )


@dataclass(frozen=True)
class World:
    """One kind of text.

    Parameters
    ----------
    name : str
        As printed.
    write : callable
        Writes the trace of a half into a folder: ``write(half, folder, num_prompts, num_tokens)``.
    predictor : str, optional
        Kind of the predictor that is fitted, with acceptance curves, on the half to tune on;
        without it both are those that the model ships.
    """

    name: str
    write: Callable[[str, Path, int, int], None]
    predictor: str | None = None

    def trace(self, folder: Path, half: str) -> Path:
        """Return where the trace of a half lies."""
        return folder / self.name / half


def write_tiny(half: str, folder: Path, num_prompts: int, num_tokens: int) -> None:
    """Record the bundled model on prompts that it was not trained on, evenly over the file."""
    source = DATA / "prompts" / ("tune.jsonl" if half == "train" else "heldout.jsonl")
    lines = source.read_text("utf-8").splitlines()
    chosen = [lines[i * len(lines) // num_prompts] for i in range(num_prompts)]
    folder.parent.mkdir(parents=True, exist_ok=True)
    prompts, profile = folder.parent / f"{half}.jsonl", folder.parent / "machine.toml"
    prompts.write_text("\n".join(chosen) + "\n", "utf-8")
    config = json.loads((DATA / "tiny" / "config.json").read_text("utf-8"))
    layers = int(config["num_hidden_layers"])
    machine_for(ModelGeometry(layers, 0, 0, 0, 0)).write(profile)
    plans = [f"eagle3:depth={p.depth},top_k={p.top_k},max_nodes={p.max_nodes}" for p in PLANS]
    command = [sys.executable, "-m", "specfit.cli", "record", "--out", str(folder)]
    command += ["--prompts", str(prompts), "--max-new-tokens", str(num_tokens), "--threads", "1"]
    command += ["--profile", str(profile), *(word for p in plans for word in ("--plans", p))]
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL)


def write_synth(task: str, half: str, folder: Path, num_prompts: int, num_tokens: int) -> None:
    """Draw synthetic texts at the size of Qwen3-30B-A3B."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    write_synthetic(
        folder,
        task_named(task),
        PLANS,
        seed=HALVES.index(half),
        num_prompts=num_prompts,
        max_new_tokens=num_tokens,
    )


def write_recorded(half: str, folder: Path, num_prompts: int, num_tokens: int) -> None:
    """Give the recorded routing of DeepSeek-V2-Lite drawn trees: every other text for a half."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with np.load(ESFT_ROUTING, allow_pickle=False) as arrays:
        tasks = sorted(name[:-4] for name in arrays.files if name.endswith("_ids"))
        texts = [
            text
            for task in tasks
            for text in np.split(arrays[f"{task}_ids"], np.cumsum(arrays[f"{task}_lens"])[:-1])
        ]
    longest = int(num_tokens / (1 - esft.PROMPT_SHARE))
    chosen = [text[:longest] for text in texts[HALVES.index(half) :: 2][:num_prompts]]
    cut = folder.parent / f"{half}.npz"
    np.savez(cut, cut_ids=np.concatenate(chosen), cut_lens=np.array([len(t) for t in chosen]))
    esft.write_trace(cut, folder, ImportOptions(), PLANS)


WORLDS = (
    World("tiny", write_tiny),
    World("synth-gsm8k", partial(write_synth, "gsm8k"), "token-table"),
    World("synth-cnn-dm", partial(write_synth, "cnn-dm"), "token-table"),
    World("deepseek-v2-lite", write_recorded, "decayed-frequency"),
)


def prepare(
    worlds: Sequence[World], folder: Path, num_texts: Mapping[str, int], num_tokens: int
) -> None:
    """Write the traces that are not there, on all processors, and fit what is to be fitted.

    Parameters
    ----------
    num_texts : mapping of str to int
        Texts of each half, at most.
    """
    halves = [(world, half) for half in reversed(HALVES) for world in worlds]  # the longest first
    missing = [(w, h) for w, h in halves if not (w.trace(folder, h) / "metadata.json").is_file()]
    joblib.Parallel(n_jobs=-1)(
        joblib.delayed(world.write)(half, world.trace(folder, half), num_texts[half], num_tokens)
        for world, half in missing
    )
    for world in worlds:
        fitted = folder / world.name / "inputs" / (world.predictor or "")
        if world.predictor and not fitted.is_dir():
            fit_inputs(world.trace(folder, "train"), world.predictor, fitted)


def fit_inputs(trace: Path, kind: str, folder: Path) -> None:
    """Fit a predictor and acceptance curves on a trace."""
    reader = TraceReader(trace)
    texts = tuple(observed_texts(reader))
    about = {"trace": reader.fingerprint}
    shape, print_of = reader.metadata.geometry, reader.fingerprint
    PredictorFit(texts, shape, print_of, about, MOST_NODES).write(kind, folder / "predictor")
    temperature = reader.metadata.sampling.temperature
    AcceptanceFit(acceptance_sample(texts), temperature, print_of, about).write(
        "depth-rank", folder / "acceptance"
    )


@cache
def inputs_of(world_folder: str, trace: str) -> Inputs:
    """Return the predictor and the acceptance model of a world; read once a process."""
    metadata = TraceReader(Path(trace)).metadata
    fitted = next(Path(world_folder).glob("inputs/*"), None)
    if fitted is None:
        return inputs_of_trace(metadata, None)
    predictor = predictors.build(fitted.name, {"folder": str(fitted / "predictor")})
    return Inputs(predictor, Adaptive(str(fitted / "acceptance"), metadata.sampling.temperature))
