"""Writes a position-complete trace of the synthetic model, labelled as synthetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from specfit.core.tree import DraftPlan
from specfit.sim.record_positions import record_positions
from specfit.sim.synth.backend import SynthBackend, requests_of
from specfit.sim.synth.drafts import SynthDrafter
from specfit.sim.synth.parameters import Task
from specfit.sim.synth.world import RoutingWorld
from specfit.sim.trace import TraceWriter, metadata_of

MODEL_NAME = "synth"
"""Folder in `specfit/data` with what a selection rests on when it replays a synthetic trace."""


def write_synthetic(
    folder: Path,
    task: Task,
    plans: tuple[DraftPlan, ...],
    *,
    seed: int,
    num_prompts: int,
    max_new_tokens: int,
    overconfidence: float = 1.0,
    on_position: Callable[[int, int], None] | None = None,
) -> None:
    """Write a trace of drawn texts.

    Parameters
    ----------
    plans : tuple of DraftPlan
        What a policy may ask for at each position.
    seed : int
        Decides the prompts, and so everything: the synthetic model itself is always the same.
    overconfidence : float
        See `SynthDrafter`.
    on_position : callable, optional
        Called with the index of the prompt and the number of its tokens so far.
    """
    drafter = SynthDrafter(task.first_acceptance, overconfidence=overconfidence)
    backend = SynthBackend(RoutingWorld(), drafter)
    specs = {"model": MODEL_NAME, "synthetic": {"task": task.name, "seed": seed}}
    metadata = replace(metadata_of(backend, "positions", plans, specs=specs), origin="synthetic")
    requests = requests_of(task, seed, num_prompts, max_new_tokens)
    with TraceWriter.create(folder, metadata) as writer:
        record_positions(backend, requests, plans, writer, on_position)
