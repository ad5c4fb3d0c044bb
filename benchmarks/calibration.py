"""How well selection's two inputs are calibrated, on held-out prompts and on what is selected.

``python -m benchmarks.calibration`` records held-out prompts position by position, greedy and
sampled, replays the `specfit` policy over them at several cache sizes, and compares what was
predicted of the verified nodes with what the target did: acceptance by depth and sibling rank
(before: the drafter's own probabilities), experts by layer, depth, residency and recency (before:
the token's own frequencies alone), and committed tokens and misses of the selections made.
Beside each error stands what chance alone gives where every prediction is right.
Counts come from real routing; only the seconds that the policy weighs are simulated.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.reliability import print_groups
from specfit.backends import load
from specfit.backends.calibrate import calibrate, pcie4_link
from specfit.backends.torch_backend import TorchBackend
from specfit.cli.manifest import manifest
from specfit.cli.prompts import read_prompts
from specfit.core.backend import Prefill, Request
from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.decode import CycleRecord, DecodeResult, Observer
from specfit.core.experts import ExpertCoverage
from specfit.core.history import NEVER
from specfit.core.noise import Sampling
from specfit.core.policy import Cycle
from specfit.core.profile import HardwareProfile
from specfit.core.tree import DraftPlan
from specfit.policies import SpecFit
from specfit.policies.inputs import load_inputs
from specfit.policies.predictors.expert_table import TABLE_FILE, ExpertTable
from specfit.sim.metrics import distinct_4, measure
from specfit.sim.record_positions import record_positions
from specfit.sim.replay import replay
from specfit.sim.trace import TraceReader, TraceWriter, metadata_of

DATA = Path(__file__).parents[1] / "specfit" / "data"
RESULTS = Path(__file__).parent / "results"
TEMPERATURES = (0.0, 0.7, 1.0)
CACHES = ("lru:25%", "lru:50%", "lru:75%", "lru:100%")
LOOPING = 0.5
"""Texts with a smaller share of distinct runs of four tokens are reported apart."""


@dataclass
class Verified(Observer):
    """Columns of verified nodes: drafted ones whose parent was right; all, with their experts."""

    table: ExpertTable
    drafted: dict[str, list[NDArray[Any]]] = field(default_factory=dict)
    routed: dict[str, list[NDArray[Any]]] = field(default_factory=dict)
    _prompt: tuple[int, ...] = ()

    def on_start(self, request: Request, prefill: Prefill) -> None:
        """Take note of the text that begins."""
        self._prompt = request.prompt

    def on_cycle(self, record: CycleRecord) -> None:
        """Take the verified nodes of a cycle."""
        self._take_drafted(record)
        self._take_routed(record)

    def _take_drafted(self, record: CycleRecord) -> None:
        cycle, answer = record.outcome.cycle, record.outcome.verification
        tree, nodes = cycle.tree, answer.nodes
        above = np.searchsorted(nodes, np.maximum(tree.parents[nodes], 0))
        is_hit = answer.target_tokens[above] == tree.tokens[nodes]
        on_path = np.zeros(len(nodes), bool)
        on_path[0] = True
        for i in range(1, len(nodes)):
            on_path[i] = on_path[above[i]] and is_hit[i]
        judged = on_path[above]
        judged[0] = False
        kept = nodes[judged]
        _append(
            self.drafted,
            depth=tree.depths[kept],
            rank=tree.ranks[kept],
            before=tree.cond_probs[kept],
            after=cycle.accept_probs[kept],
            happened=is_hit[judged],
            outcome=self._keys(cycle)[kept],
        )

    def _take_routed(self, record: CycleRecord) -> None:
        cycle, answer = record.outcome.cycle, record.outcome.verification
        nodes, shape = answer.nodes, cycle.geometry
        ages = np.full((shape.num_layers, shape.num_experts), NEVER, np.int64)
        unknown = np.full(len(nodes), -1)
        tokens, depths = cycle.tree.tokens[nodes], cycle.tree.depths[nodes]
        plain = self.table.probs(tokens, unknown, depths, ages)
        size = plain.shape
        _append(
            self.routed,
            depth=np.broadcast_to(cycle.tree.depths[nodes][:, None, None], size),
            layer=np.broadcast_to(np.arange(size[1])[None, :, None], size),
            resident=np.broadcast_to(cycle.residency.mask[None], size),
            before=plain,
            after=cycle.expert_probs.probs[nodes],
            happened=ExpertCoverage(answer.routing, size[2]).mask,
            outcome=self._keys(cycle)[nodes][:, None, None]
            + np.arange(size[1] * size[2]).reshape(size[1:]),
        )

    def _keys(self, cycle: Cycle) -> NDArray[np.int64]:
        """Return a number for each node that tells its text, place and path, int64[N]."""
        tree, keys = cycle.tree, [hash((self._prompt, cycle.context_len))]
        for parent, token in zip(tree.parents[1:].tolist(), tree.tokens[1:].tolist(), strict=True):
            keys.append(hash((keys[parent], token)))
        return np.array(keys, np.int64)


def _append(columns: dict[str, list[NDArray[Any]]], **arrays: NDArray[Any]) -> None:
    for name, array in arrays.items():
        columns.setdefault(name, []).append(np.ascontiguousarray(array).ravel())


def main(arguments: Sequence[str] | None = None) -> None:
    """Record, replay, print, and write the same numbers as JSON."""
    options = _options(arguments)
    torch.set_num_threads(options.threads)
    backend = load(options.model, cache="lru:100%")
    backend.set_link(pcie4_link(calibrate(backend), backend.geometry))
    profile = calibrate(backend, name="cpu-emulated-pcie4")
    report: dict[str, Any] = {
        "what": "calibration on held-out prompts; counts recorded, seconds simulated",
        "manifest": manifest(torch=torch.__version__),
        "command": "python -m benchmarks.calibration",
    }
    with tempfile.TemporaryDirectory() as folder:
        for temperature in TEMPERATURES:
            path = Path(folder) / f"t{temperature}"
            trace = _record(backend, options, Sampling(temperature=temperature), path)
            report[f"temperature {temperature}"] = _report(trace, backend, profile, options)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")


def _record(
    backend: TorchBackend, options: argparse.Namespace, sampling: Sampling, path: Path
) -> TraceReader:
    policy = SpecFit()
    plans = (DraftPlan(policy.depth, policy.top_k, policy.max_nodes),)
    metadata = metadata_of(backend, "positions", plans=plans, sampling=sampling)
    with TraceWriter.create(path, metadata) as writer:
        record_positions(backend, _requests(backend, options, sampling), plans, writer)
    return TraceReader(path)


def _requests(
    backend: TorchBackend, options: argparse.Namespace, sampling: Sampling
) -> Iterator[Request]:
    for index, prompt in enumerate(read_prompts(options.prompts)[: options.num_prompts]):
        keyed = replace(sampling, noise_key=index)
        tokens = tuple(backend.tokenizer(prompt.text).input_ids)
        yield Request(tokens, options.tokens, frozenset(), keyed)


def _report(
    trace: TraceReader,
    backend: TorchBackend,
    profile: HardwareProfile,
    options: argparse.Namespace,
) -> dict[str, Any]:
    sampling = trace.metadata.sampling
    folder = backend.checkpoint.folder
    predictor, acceptance = load_inputs(folder, backend.geometry, sampling)
    table = ExpertTable.load(TABLE_FILE, folder / "predictor").at(sampling.temperature)
    seen = Verified(table)
    print(f"\n== temperature {sampling.temperature}")
    found: dict[str, Any] = {}
    for cache in options.caches:
        slots = make_cache(cache, backend.geometry)
        replayed = replay(
            trace,
            SpecFit(),
            slots,
            profile,
            cost=ProfileCost(profile),
            predictor=predictor,
            acceptance=acceptance,
            observers=[seen],
        )
        results = list(replayed)
        found[f"selections at {cache}"] = _selections(results, cache, backend.geometry.expert_bytes)
    return found | _acceptance(seen.drafted) | _experts(seen.routed, backend.geometry.num_layers)


def _selections(results: Sequence[DecodeResult], cache: str, expert_bytes: int) -> dict[str, float]:
    kept = [r for r in results if distinct_4(r.tokens) >= LOOPING]
    metrics = measure(kept, expert_bytes)
    row = {
        "prompts": len(kept),
        "looping": len(results) - len(kept),
        "committed_per_cycle": metrics.committed_per_cycle,
        "verified_per_cycle": metrics.verified_per_cycle,
        "committed_ratio": metrics.calibration.committed_ratio,
        "misses_ratio": metrics.calibration.misses_ratio,
    }
    print(f"{cache:9s}" + "  ".join(f"{k} {v:.3f}" for k, v in row.items()))
    return row


def _acceptance(columns: dict[str, list[NDArray[Any]]]) -> dict[str, Any]:
    c = {name: np.concatenate(arrays) for name, arrays in columns.items()}
    sides = (c["before"], c["after"], c["happened"], c["outcome"])
    depth, rank = np.minimum(c["depth"], 6), np.minimum(c["rank"], 3)
    names = [f"depth {d} rank {r}" for d in range(1, 7) for r in range(4)]
    found = print_groups("acceptance", names, (depth - 1) * 4 + rank, *sides)
    everything = print_groups("acceptance", ["all"], np.zeros(len(depth), int), *sides)
    return {"acceptance": found | everything}


def _experts(columns: dict[str, list[NDArray[Any]]], num_layers: int) -> dict[str, Any]:
    c = {name: np.concatenate(arrays) for name, arrays in columns.items()}
    sides = (c["before"], c["after"], c["happened"], c["outcome"])
    layers = [f"layer {i}" for i in range(num_layers)]
    depths = [f"depth {d}" for d in range(7)]
    places = [f"layer {i}, {s}" for i in range(num_layers) for s in ("missing", "resident")]
    return {
        "experts by layer": print_groups("experts", layers, c["layer"], *sides),
        "experts by depth": print_groups("experts", depths, np.minimum(c["depth"], 6), *sides),
        "experts by residency": print_groups(
            "experts", places, 2 * c["layer"] + c["resident"], *sides
        ),
    }


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--model", default="tiny", help="bundled model or checkpoint folder")
    parser.add_argument("--prompts", type=Path, default=DATA / "prompts" / "heldout.jsonl")
    parser.add_argument("--num-prompts", type=int, default=24)
    parser.add_argument("--tokens", type=int, default=64, help="new tokens a prompt")
    parser.add_argument("--caches", nargs="+", default=CACHES)
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--out", type=Path, default=RESULTS / "calibration.json")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    main()
