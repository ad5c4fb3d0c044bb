"""`specfit explain`: one cycle of a trace, node by node, as text and as a picture."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specfit.cli import options
from specfit.cli.console import print_json, print_note, print_table
from specfit.core.errors import CheckpointError, InvalidInputError

if TYPE_CHECKING:
    from specfit.core.decode import CycleRecord
    from specfit.sim.trace import TraceMetadata

TraceFolder = Annotated[Path, typer.Argument(help="Folder that `specfit record` wrote.")]
PromptIndex = Annotated[int, typer.Option("--prompt", min=0, help="Index of the prompt.")]
CycleIndex = Annotated[
    int | None,
    typer.Option("--cycle", min=0, help="Index of the cycle; by default one that shows much."),
]
Picture = Annotated[
    Path | None, typer.Option("--out", "-o", help="Also draw it: tree.png gives tree.png and .svg.")
]
COLUMNS = ["node", "token", "draft", "accept", "path", "rank", "copies", "ms", ""]


def explain(
    trace: TraceFolder,
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
    out: Picture = None,
    as_json: options.Json = False,
) -> None:
    """Show one cycle: what was drafted, which nodes were chosen, and what each of them costs.

    Example: specfit explain demo-results/trace --prompt 2 --cache lru:50% --out cycle.png
    """
    from specfit.cli.inputs import inputs_of_trace
    from specfit.cli.replay import Replayer, hardware_of, recorded_policy
    from specfit.cli.specs import cost_from
    from specfit.report.example_cycle import cycle_to_show
    from specfit.sim.trace import TraceReader

    reader = TraceReader(trace)
    hardware = hardware_of(reader, profile)
    inputs = inputs_of_trace(reader.metadata, model)
    replayer = Replayer(reader, hardware, cost_from(cost, hardware), inputs, prompt + 1)
    policy = policy or recorded_policy(reader.metadata) or "specfit"
    cache = cache or reader.metadata.specs.get("cache") or "lru:25%"
    if prompt >= reader.num_prompts:
        raise InvalidInputError(f"--prompt must be 0 to {reader.num_prompts - 1}; got {prompt}.")
    result = replayer.run(policy, cache, settings, lambda: None).results[prompt]
    if cycle is not None and cycle >= len(result.cycles):
        raise InvalidInputError(f"--cycle must be 0 to {len(result.cycles) - 1}; got {cycle}.")
    shown = cycle_to_show([result]) or result.cycles[0] if cycle is None else result.cycles[cycle]
    decode = decoder_of(reader.metadata, model)
    title = f"prompt {prompt}, cycle {result.cycles.index(shown)}, {policy}, cache {cache}"
    if as_json:
        print_json(json_rows(shown, decode))
    else:
        print_cycle(shown, decode, title)
    if out is not None:
        draw(shown, decode, title, out)


def decoder_of(metadata: TraceMetadata, model: str | None) -> Callable[[Sequence[int]], str]:
    """Return what turns tokens into text; token ids where the model is not at hand."""
    from specfit.backends.tokens import token_decoder
    from specfit.cli.inputs import model_folder

    try:
        return token_decoder(model_folder(model or str(metadata.specs.get("model", ""))))
    except CheckpointError as error:
        print_note(f"warning: token ids are shown instead of text. {error}")
        return lambda tokens: " ".join(map(str, tokens))


def print_cycle(record: CycleRecord, decode: Callable[[Sequence[int]], str], title: str) -> None:
    """Print a cycle as a table of its nodes, and what was expected of it."""
    from specfit.report.explanation import expectation_text, facts_of

    rows = [
        [
            "  " * fact.depth + str(fact.node),
            repr(decode([fact.token])),
            f"{fact.draft_prob:.2f}",
            f"{fact.accept_prob:.2f}",
            f"{fact.path_prob:.3f}",
            str(fact.draft_rank),
            f"{fact.copies:.1f}",
            f"{fact.expert_s * 1e3:.2f}",
            fact.verdict,
        ]
        for fact in facts_of(record)
    ]
    print_table(COLUMNS, rows, title=title, note=expectation_text(record), is_numeric=False)


def json_rows(record: CycleRecord, decode: Callable[[Sequence[int]], str]) -> list[dict[str, Any]]:
    """Return one object a node."""
    from specfit.report.explanation import facts_of

    return [{**asdict(fact), "text": decode([fact.token])} for fact in facts_of(record)]


def draw(
    record: CycleRecord, decode: Callable[[Sequence[int]], str], title: str, out: Path
) -> None:
    """Draw the cycle's tree as PNG and SVG."""
    from specfit.report.example_cycle import view_of
    from specfit.report.style import save
    from specfit.report.tree import draw_tree

    out.parent.mkdir(parents=True, exist_ok=True)
    for path in save(draw_tree(view_of(record, decode, title=title)), out.with_suffix("")):
        print_note(f"written: {path}")
