"""The cycle that is to be explained: its text replayed up to it, with all that decides it anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from specfit.cli.console import print_note
from specfit.core.errors import InvalidInputError

if TYPE_CHECKING:
    from specfit.cli.input_specs import Named
    from specfit.core.backend import Request
    from specfit.core.decode import CycleRecord, DecodeResult
    from specfit.core.policy import Cycle, Policy
    from specfit.core.profile import HardwareProfile
    from specfit.report.reenact import Scene
    from specfit.report.what_if import Answer, WhatIf
    from specfit.sim.replay import ReplayBackend
    from specfit.sim.trace import TraceMetadata

RIVALS = ("eagle3", "evict")
"""Policies whose choice is held against the one explained, where they are registered."""


@dataclass(frozen=True)
class Asked:
    """What the command line asks to explain; None where the trace says it.

    Parameters
    ----------
    trace : Path
        The trace.
    prompt, cycle : int
        Their indices; without a cycle one that shows much.
    policy, cache, cost, host, profile, model : str
        Specs and names, as `specfit replay` takes them.
    settings : sequence of str
        Parameters of the policy.
    inputs : Named
        Specs of predictor and acceptance model.
    """

    trace: Path
    prompt: int
    cycle: int | None
    policy: str | None
    settings: Sequence[str]
    cache: str | None
    cost: str | None
    host: str
    profile: str | None
    model: str | None
    inputs: Named

    def specs(self, metadata: TraceMetadata) -> tuple[str, str, str]:
        """Return the specs of policy, cache and prefetcher: those given, or the recorded ones."""
        from specfit.cli.replay import recorded_policy

        policy = self.policy or recorded_policy(metadata) or "specfit"
        cache = self.cache or metadata.specs.get("cache") or "lru:25%"
        return policy, cache, metadata.specs.get("prefetch") or "none"


@dataclass(frozen=True, eq=False)
class Explained:
    """A cycle that is explained, and how to decide it anew.

    Parameters
    ----------
    what_if : WhatIf
        The cycle's scene.
    answer : Answer
        What was decided, as recorded.
    cache : str
        Spec of the cache with its capacity in experts a layer.
    policy : str
        Name of the policy, without its parameters.
    title : str
        Prompt, cycle, policy, cache and what else was given.
    """

    what_if: WhatIf
    answer: Answer
    cache: str
    policy: str
    title: str

    @property
    def record(self) -> CycleRecord:
        """The cycle and what came of it."""
        return self.what_if.scene.record


def explain_cycle(asked: Asked) -> Explained:
    """Replay a prompt up to a cycle and ask what decided it."""
    from specfit.cli.input_specs import chosen_inputs
    from specfit.cli.replay import hardware_of, recorded_cost
    from specfit.cli.specs import cost_from, host_from, prefetcher_from
    from specfit.core.cache import make_cache
    from specfit.core.decode import DecodeLoop
    from specfit.core.policy import policies
    from specfit.report.reenact import watch_scene
    from specfit.sim.replay import ReplayBackend, connect_references
    from specfit.sim.trace import TraceReader

    reader = TraceReader(asked.trace)
    policy, cache, prefetch = asked.specs(reader.metadata)
    experts = make_cache(cache, reader.metadata.geometry)
    hardware = hardware_of(reader, asked.profile)
    cost, named = asked.cost or recorded_cost(reader.metadata), asked.inputs
    inputs = chosen_inputs(reader.metadata, asked.model, named.predictor, named.acceptance)
    host = host_from(asked.host, reader.metadata)
    in_host = None if host is None else make_cache(host, reader.metadata.geometry)
    backend = ReplayBackend(reader, experts, hardware, in_host)
    prefetcher = prefetcher_from(prefetch)
    connect_references(backend, inputs.predictor, prefetcher)
    request = request_of(backend, asked.prompt)
    loop = DecodeLoop(
        backend,
        policy_to_explain(policy, asked.settings),
        cost_from(cost, hardware),
        inputs.predictor,
        inputs.acceptance,
        prefetcher=prefetcher,
    )
    result = loop.run(request)
    index = cycle_index(result, asked.cycle)
    scene = watch_scene(loop, request, index)
    go_back(backend, request, result.tokens, scene.cycle)
    what_if = what_if_of(scene, hardware, cost, host)
    full_name = ",".join([policy, *asked.settings])
    others = "" if host is None else f", host {host}"
    others += "" if prefetcher is None else f", prefetch {prefetch}"
    others += "" if named.predictor is None else f", predictor {named.predictor}"
    return Explained(
        what_if,
        what_if.answer(what_if.scene.cycle),
        sized(cache, experts.capacity),
        policies.parse(policy)[0],
        f"prompt {asked.prompt}, cycle {index}, {full_name}, cache {cache}{others}",
    )


def go_back(backend: ReplayBackend, request: Request, tokens: Sequence[int], cycle: Cycle) -> None:
    """Bring the backend back into a finished cycle of this text, so that an oracle still sees it.

    Parameters
    ----------
    tokens : sequence of int
        All that the request committed.
    cycle : Cycle
        When its selection was made.
    """
    from specfit.core.tree import DraftTree

    root = DraftTree.root(backend.start(request).first_token)
    backend.commit(root, (), tuple(tokens[1 : cycle.context_len - len(request.prompt)]))
    backend.draft(replace(cycle.plan, depth=cycle.levels), cycle.tree.first(1))


def request_of(backend: ReplayBackend, prompt: int) -> Request:
    """Return the request of a prompt of the trace that the backend replays.

    Raises
    ------
    InvalidInputError
        The trace has no such prompt.
    """
    last = backend.trace.num_prompts - 1
    if prompt > last:
        raise InvalidInputError(f"--prompt must be 0 to {last}; got {prompt}.")
    return next(islice(backend.requests(), prompt, None))


def policy_to_explain(spec: str, settings: Sequence[str]) -> Policy:
    """Return the policy.

    Raises
    ------
    InvalidInputError
        It knows the target's answers, so it decides nothing.
    """
    from specfit.cli.specs import policy_from

    policy = policy_from(spec, settings)
    if policy.is_reference:
        raise InvalidInputError(
            f"{spec} knows the target's answers beforehand, so there is no decision to explain. "
            f"Give another --policy."
        )
    return policy


def what_if_of(scene: Scene, hardware: HardwareProfile, cost: str, host: str | None) -> WhatIf:
    """Return a scene with all that it takes to decide it anew."""
    from specfit.cli.specs import cost_from
    from specfit.core.cache import make_cache
    from specfit.core.policy import policies
    from specfit.report.what_if import WhatIf

    return WhatIf(
        scene,
        hardware,
        lambda other: cost_from(cost, other),
        lambda spec: make_cache(spec, scene.cycle.geometry),
        {name: policies.make(name) for name in RIVALS if name in policies.names()},
        host,
    )


def cycle_index(result: DecodeResult, cycle: int | None) -> int:
    """Return the index of the cycle that is asked for, or of one that shows much."""
    from specfit.report.example_cycle import cycle_to_show

    if not result.cycles:
        raise InvalidInputError(
            "the text has one token, which the prompt gave: there is no cycle to explain. "
            "Give another --prompt."
        )
    if cycle is None:
        shown = cycle_to_show([result])
        if shown is None:
            print_note("note: no cycle of this prompt drafted anything; the first one is shown.")
            return 0
        return result.cycles.index(shown)
    if cycle >= len(result.cycles):
        raise InvalidInputError(f"--cycle must be 0 to {len(result.cycles) - 1}; got {cycle}.")
    return cycle


def sized(spec: str, capacity: int) -> str:
    """Return a cache spec with its size in experts a layer; ``none`` stays."""
    name, colon, rest = spec.partition(":")
    _, comma, params = rest.partition(",")
    return f"{name}:{capacity}{comma}{params}" if colon else spec
