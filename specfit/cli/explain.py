"""`specfit explain`: one cycle of a trace, node by node: as text, as a picture, as a page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specfit.cli import options
from specfit.cli.console import is_narrow, print_json, print_note, print_table, print_text
from specfit.cli.explained import Asked, Explained, explain_cycle
from specfit.cli.input_specs import Acceptance, Named, Predictor
from specfit.core.errors import CheckpointError, InvalidInputError, UnsupportedCostError

if TYPE_CHECKING:
    from specfit.report.what_if import Answer
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

COLUMNS = ["node", "token", "draft", "accept", "path", "rank", "copies", "ms", "gain", ""]
NARROW_COLUMNS = ["node", "token", "path", "ms", ""]
NARROW_TOKEN = 12
"""Characters of a token on a narrow terminal."""

Decoder = Callable[[Sequence[int]], str]


def explain(
    trace: options.TraceFolder,
    prompt: PromptIndex = 0,
    cycle: CycleIndex = None,
    policy: options.RecordedPolicy = None,
    settings: options.Settings = [],  # noqa: B006 - typer copies
    cache: options.RecordedCache = None,
    cost: options.RecordedCost = None,
    host: options.HostOf = "trace",
    profile: options.Profile = None,
    model: Annotated[
        str | None, typer.Option("--model", "-m", help="Model; by default the trace's.")
    ] = None,
    predictor: Predictor = None,
    acceptance: Acceptance = None,
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
    from specfit.cli.outputs import check_can_write
    from specfit.sim.trace import TraceReader

    check_can_write(*out)
    metadata = TraceReader(trace).metadata
    inputs = Named(predictor, acceptance)
    asked = Asked(trace, prompt, cycle, policy, settings, cache, cost, host, profile, model, inputs)
    explained = explain_cycle(asked)
    decode = decoder_of(metadata, model)
    if as_json:
        print_json(json_rows(explained, decode))
    else:
        print_cycle(explained, decode)
    write(explained, decode, out)


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
