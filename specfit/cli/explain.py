"""`specfit explain`: one cycle of a trace, node by node: as text, as a picture, as a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specfit.cli import options
from specfit.cli.console import is_narrow, print_json, print_note, print_table, print_text
from specfit.core.errors import CheckpointError, InvalidInputError, UnsupportedCostError

if TYPE_CHECKING:
    from specfit.core.backend import Request
    from specfit.core.decode import CycleRecord, DecodeResult
    from specfit.core.policy import Policy
    from specfit.core.profile import HardwareProfile
    from specfit.report.reenact import Scene
    from specfit.report.what_if import Answer, WhatIf
    from specfit.sim.replay import ReplayBackend
    from specfit.sim.trace import TraceMetadata

PromptIndex = Annotated[int, typer.Option("--prompt", min=0, help="Index of the prompt.")]
CycleIndex = Annotated[
    int | None,
    typer.Option("--cycle", min=0, help="Index of the cycle; by default one that shows much."),
]
Files = Annotated[
    list[Path],
    typer.Option(
        "--out",
        "-o",
        help="Also write it: cycle.html is a page to explore, cycle.png a picture (with .svg); "
        "give several.",
    ),
]
KINDS = (".html", ".png", ".svg")
RIVALS = ("eagle3", "evict")
"""Policies whose choice is held against the one explained, where they are registered."""

COLUMNS = ["node", "token", "draft", "accept", "path", "rank", "copies", "ms", "gain", ""]
NARROW_COLUMNS = ["node", "token", "path", "ms", ""]
NARROW_TOKEN = 12
"""Characters of a token on a narrow terminal."""

Decoder = Callable[[Sequence[int]], str]


@dataclass(frozen=True)
class Asked:
    """What the command line asks to explain; None where the trace says it.

    Parameters
    ----------
    trace : Path
        The trace.
    prompt, cycle : int
        Their indices; without a cycle one that shows much.
    policy, cache, cost, profile, model : str
        Specs and names, as `specfit replay` takes them.
    settings : sequence of str
        Parameters of the policy.
    """

    trace: Path
    prompt: int
    cycle: int | None
    policy: str | None
    settings: Sequence[str]
    cache: str | None
    cost: str
    profile: str | None
    model: str | None

    def specs(self, metadata: TraceMetadata) -> tuple[str, str]:
        """Return the specs of policy and cache: those given, or else the recorded ones."""
        from specfit.cli.replay import recorded_policy

        policy = self.policy or recorded_policy(metadata) or "specfit"
        return policy, self.cache or metadata.specs.get("cache") or "lru:25%"


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
        Prompt, cycle, policy and cache.
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


def explain(
    trace: options.TraceFolder,
    prompt: PromptIndex = 0,
    cycle: CycleIndex = None,
    policy: options.RecordedPolicy = None,
    settings: options.Settings = [],  # noqa: B006 - typer copies
    cache: options.RecordedCache = None,
    cost: options.Cost = "profile",
    profile: options.Profile = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Model; by default the trace's.")
    ] = None,
    out: Files = [],  # noqa: B006 - typer copies
    as_json: options.Json = False,
) -> None:
    """Show one cycle: what was drafted, which nodes were chosen, and what each of them costs.

    Example: specfit explain demo-results/trace --prompt 2 --cache lru:50% --out cycle.html
    """
    for path in out:
        if path.suffix not in KINDS:
            raise InvalidInputError(
                f"--out must end in {', '.join(KINDS[:-1])} or {KINDS[-1]}; got '{path}'."
            )
    from specfit.sim.trace import TraceReader

    metadata = TraceReader(trace).metadata
    asked = Asked(trace, prompt, cycle, policy, settings, cache, cost, profile, model)
    explained = explain_cycle(asked)
    decode = decoder_of(metadata, model)
    if as_json:
        print_json(json_rows(explained, decode))
    else:
        print_cycle(explained, decode)
    write(explained, decode, out)


def explain_cycle(asked: Asked) -> Explained:
    """Replay a prompt up to a cycle and ask what decided it."""
    from specfit.cli.inputs import inputs_of_trace
    from specfit.cli.replay import hardware_of
    from specfit.cli.specs import cost_from
    from specfit.core.cache import make_cache
    from specfit.core.decode import DecodeLoop
    from specfit.core.policy import policies
    from specfit.report.reenact import watch_scene
    from specfit.sim.replay import ReplayBackend
    from specfit.sim.trace import TraceReader

    reader = TraceReader(asked.trace)
    policy, cache = asked.specs(reader.metadata)
    experts = make_cache(cache, reader.metadata.geometry)
    hardware = hardware_of(reader, asked.profile)
    inputs = inputs_of_trace(reader.metadata, asked.model)
    backend = ReplayBackend(reader, experts, hardware)
    request = request_of(backend, asked.prompt)
    loop = DecodeLoop(
        backend,
        policy_to_explain(policy, asked.settings),
        cost_from(asked.cost, hardware),
        inputs.predictor,
        inputs.acceptance,
    )
    index = cycle_index(loop.run(request), asked.cycle)
    what_if = what_if_of(watch_scene(loop, request, index), hardware, asked.cost)
    named = ",".join([policy, *asked.settings])
    return Explained(
        what_if,
        what_if.answer(what_if.scene.cycle),
        sized(cache, experts.capacity),
        policies.parse(policy)[0],
        f"prompt {asked.prompt}, cycle {index}, {named}, cache {cache}",
    )


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
    if getattr(policy, "is_reference", False):
        raise InvalidInputError(
            f"{spec} knows the target's answers beforehand, so there is no decision to explain. "
            f"Give another --policy."
        )
    return policy


def what_if_of(scene: Scene, hardware: HardwareProfile, cost: str) -> WhatIf:
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


def decoder_of(metadata: TraceMetadata, model: str | None) -> Decoder:
    """Return what turns tokens into text; token ids where the model is not at hand."""
    from specfit.backends.tokens import token_decoder
    from specfit.data import model_folder

    try:
        return token_decoder(model_folder(model or str(metadata.specs.get("model", ""))))
    except CheckpointError as error:
        why = str(error)
    except ModuleNotFoundError as error:
        why = f"{error.name} is not installed. Run: pip install 'specfit[torch]'"
    print_note(f"warning: token ids are shown instead of text. {why}")
    return lambda tokens: " ".join(map(str, tokens))


def print_cycle(explained: Explained, decode: Decoder) -> None:
    """Print a cycle as a table of its nodes, and what was expected of it."""
    from specfit.report.explanation import (
        expectation_text,
        facts_of,
        look_texts,
        price_text,
        rule_texts,
    )

    answer = explained.answer
    _, _, gains = answer.node_costs()
    facts, is_small = facts_of(explained.record), is_narrow(84)
    rows = []
    for fact in facts:
        word = repr(decode([fact.token]))
        if is_small:
            figures = [f"{fact.path_prob:.3f}", f"{fact.expert_s * 1e3:.1f}"]
            place = " " * fact.depth + str(fact.node)
            rows.append([place, word[:NARROW_TOKEN], *figures, fact.verdict[:1].upper()])
            continue
        rows.append(
            [
                "  " * fact.depth + str(fact.node),
                word,
                f"{fact.draft_prob:.2f}",
                f"{fact.accept_prob:.2f}",
                f"{fact.path_prob:.3f}",
                str(fact.draft_rank),
                f"{fact.copies:.1f}",
                f"{fact.expert_s * 1e3:.2f}",
                f"{gains[fact.node]:+.3f}" if fact.node else "",
                fact.verdict,
            ]
        )
    columns = NARROW_COLUMNS if is_small else COLUMNS
    note = expectation_text(explained.record)
    print_table(columns, rows, title=explained.title, note=note, is_numeric=False)
    print_text("A accepted, C chosen, R root" if is_small else "")
    for line in rule_texts(answer, explained.policy):
        print_text(line)
    print_text(price_text(answer))
    print_text(proof_text(answer))
    for line in look_texts(answer.decision.looks):
        print_text(line, style="dim")


def proof_text(answer: Answer) -> str:
    """Return what proves that no selection is better; the proof is checked here."""
    from specfit.core.search import certify
    from specfit.testing.certificate import check_certificate

    best, decision = answer.best, answer.decision
    problem = decision.problem or answer.problem
    what = "the choice" if decision.best is not None else "the exact search's choice"
    try:
        check_certificate(problem, best, certify(problem, best))
    except UnsupportedCostError as error:
        return f"certificate: none, {error} Upper bound: {best.upper_bound:.2f} tokens/s."
    return (
        f"certificate: {what} is optimal at its price; checked without the search, no selection "
        f"of this tree has more than {best.price:.2f} tokens/s."
    )


def json_rows(explained: Explained, decode: Decoder) -> list[dict[str, Any]]:
    """Return one object a node."""
    from specfit.report.explanation import facts_of

    answer = explained.answer
    _, _, gains = answer.node_costs()
    return [
        {
            **asdict(fact),
            "gain_tokens": float(gains[fact.node]),
            "text": decode([fact.token]),
            "rules": [name for name, mask in answer.rules.items() if mask[fact.node]],
        }
        for fact in facts_of(explained.record)
    ]


def write(explained: Explained, decode: Decoder, out: Sequence[Path]) -> None:
    """Write the pictures and pages that are asked for."""
    for path in out:
        path.parent.mkdir(parents=True, exist_ok=True)
        written = [write_page(explained, decode, path)] if path.suffix == ".html" else []
        for name in written or draw(explained, decode, path):
            print_note(f"written: {name}")


def write_page(explained: Explained, decode: Decoder, out: Path) -> Path:
    """Write the page to explore."""
    from specfit.cli.outputs import new_file
    from specfit.report.cycle_page import PageText, cycle_page
    from specfit.report.explanation import expectation_text, look_texts, price_text
    from specfit.report.what_if import caches_to_try

    hardware, answer = explained.what_if.profile, explained.answer
    geometry = answer.cycle.geometry
    caches = caches_to_try(explained.cache, geometry.num_experts, geometry.experts_per_token)
    text = PageText(
        title=explained.title,
        came=expectation_text(explained.record),
        seconds=f"Seconds are simulated from profile '{hardware.name}' ({hardware.kind}). Where "
        f"the sliders are moved, the policy decides anew on the tree as drafted, from its state at "
        f"the start of the cycle; the cache is taken to have seen the same passes.",
        price=price_text(answer),
        proof=proof_text(answer),
        looks=look_texts(answer.decision.looks),
    )
    with new_file(out) as partial:
        page = cycle_page(explained.what_if, caches, explained.cache, decode, text)
        partial.write_text(page, encoding="utf-8")
    return out


def draw(explained: Explained, decode: Decoder, out: Path) -> list[Path]:
    """Draw the cycle's tree as PNG and SVG."""
    from specfit.report.example_cycle import view_of
    from specfit.report.style import save
    from specfit.report.tree import draw_tree

    answer = explained.answer
    view = view_of(explained.record, decode, title=explained.title, rules=answer.rules)
    return save(draw_tree(view), out.with_suffix(""))
