"""Recorded cycles as search instances: trees, predictions and routing of the bundled model.

A trace is replayed under a fixed tree that is verified whole, so that the target's own routing of
every node is known; what the search would be given is caught on the way. Costs are those of the
committed decoding benchmark's profile, so that an instance does not depend on the machine.

``python -m benchmarks.search_recorded TRACE FILE.npz`` keeps a few cycles for the tests.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import numpy as np

from benchmarks.search_instances import Instance
from specfit.cli.input_specs import chosen_inputs
from specfit.core.backend import Request
from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.noise import Sampling
from specfit.core.policy import Outcome
from specfit.core.profile import HardwareProfile
from specfit.core.tree import DraftPlan
from specfit.policies.eagle3 import Eagle3
from specfit.sim.record_positions import record_positions
from specfit.sim.replay import replay
from specfit.sim.trace import TraceReader, TraceWriter, metadata_of

DATA = Path(__file__).parents[1] / "specfit" / "data"
PROFILE = Path(__file__).parent / "results" / "decode.json"
PLAN = DraftPlan(7, 4, 64)
EVERY = 3
"""Cycles from one that is kept to the next: neighbours are much alike."""


def record_demo(folder: Path, num_prompts: int = 6, num_tokens: int = 48) -> TraceReader:
    """Record the first demo prompts, position by position, with everything resident."""
    from specfit.backends import load
    from specfit.cli.prompts import read_prompts

    with load("tiny", cache="lru:100%") as backend:
        requests = [
            Request(
                prompt=tuple(backend.tokenizer(prompt.text)["input_ids"]),
                max_new_tokens=num_tokens,
                stop_ids=frozenset(),
                sampling=Sampling(),
            )
            for prompt in list(read_prompts(DATA / "prompts" / "demo.jsonl"))[:num_prompts]
        ]
        metadata = metadata_of(backend, "positions", plans=(PLAN,))
        with TraceWriter.create(folder, metadata) as writer:
            record_positions(backend, requests, (PLAN,), writer)
    return TraceReader(folder)


@dataclass
class Caught(Eagle3):
    """The tree of `PLAN`, verified whole; keeps what each cycle gave the search."""

    depth: int = PLAN.depth
    top_k: int = PLAN.top_k
    max_nodes: int = PLAN.max_nodes
    found: list[Instance] = field(default_factory=list, init=False, repr=False, compare=False)

    def observe(self, outcome: Outcome) -> None:
        cycle, nodes = outcome.cycle, outcome.verification.nodes
        if cycle.cycle_index % EVERY or len(nodes) < 2:
            return
        place = np.full(len(cycle.tree), -1, np.int32)
        place[nodes] = np.arange(len(nodes))
        parents = np.where(nodes == 0, -1, place[cycle.tree.parents[nodes]]).astype(np.int32)
        terms = cycle.terms
        self.found.append(
            Instance(
                parents,
                cycle.path_probs[nodes],
                np.array(outcome.verification.routing, np.int16),
                cycle.expert_probs.probs[nodes],
                terms,
                min(cycle.levels, len(terms.draft_s) - 1),
            )
        )


def profile() -> HardwareProfile:
    """Return the profile of the committed decoding benchmark."""
    return HardwareProfile(**json.loads(PROFILE.read_text("utf-8"))["profile"])


def recorded(trace: TraceReader, resident: float) -> Iterator[Instance]:
    """Yield cycles of a position trace with a part of the experts resident."""
    hardware, catch = profile(), Caught()
    inputs = chosen_inputs(trace.metadata, None, None, None)
    results = replay(
        trace,
        catch,
        make_cache(f"lru:{resident:.0%}", trace.metadata.geometry),
        hardware,
        cost=ProfileCost(hardware),
        predictor=inputs.predictor,
        acceptance=inputs.acceptance,
    )
    for _ in results:
        yield from catch.found
        catch.found.clear()


def keep(trace: TraceReader, file: Path, count: int = 2) -> None:
    """Write a few cycles at three cache sizes as arrays, probabilities in half precision."""
    arrays = {}
    for resident in (0.25, 0.5, 0.75):
        for i, cycle in enumerate(islice(recorded(trace, resident), 0, 10 * count, 10)):
            name = f"{resident:.0%}_{i}"
            arrays |= {
                f"{name}_parents": cycle.parents,
                f"{name}_path_probs": cycle.path_probs,
                f"{name}_routing": cycle.routing.astype(np.uint8),
                f"{name}_probs": np.minimum(cycle.probs, 1.0).astype(np.float16),
                f"{name}_weight_s": cycle.terms.weight_s.astype(np.float32),
                f"{name}_tau_s": cycle.terms.tau_s[: len(cycle.parents) + 1],
                f"{name}_draft_s": cycle.terms.draft_s[: cycle.levels + 1],
            }
    np.savez_compressed(file, **arrays)


def main(arguments: Sequence[str] | None = None) -> int:
    """Keep a few cycles of a trace."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace", type=Path, help="a position trace that covers the plan of PLAN")
    parser.add_argument("file", type=Path, help="an .npz file")
    options = parser.parse_args(arguments)
    keep(TraceReader(options.trace), options.file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
