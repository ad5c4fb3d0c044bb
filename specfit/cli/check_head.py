"""`specfit check head`: whether a draft head fits its target, and whether another wiring would."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specfit.cli import options
from specfit.cli.console import print_json, print_note, print_table, print_text, progress
from specfit.cli.live_options import ModelOptions, TargetOptions
from specfit.cli.option_groups import with_options

if TYPE_CHECKING:
    from specfit.backends.head_check import Fit, HeadReport
    from specfit.backends.torch_backend import TorchBackend

NUM_PROMPTS = 4

HeadFolder = Annotated[Path, typer.Argument(help="Folder of the draft head.")]
NumTokens = Annotated[int, typer.Option("--tokens", "-n", min=8, help="Tokens of each text.")]
Write = Annotated[
    bool, typer.Option("--write", help="Write what fits better beside the head, to be used.")
]


@with_options
def check_head(
    *,
    head: HeadFolder,
    tokens: NumTokens = 64,
    prompts: options.PromptFile = None,
    cache: options.OneCache = "lru:100%",
    target_options: TargetOptions,
    write: Write = False,
    as_json: options.Json = False,
) -> None:
    """Measure a draft head on the target's own text, and try the wirings it might mean.

    Example: specfit check head eagle3/ --model tiny
    """
    from specfit.backends.eagle3_checkpoint import OVERRIDES
    from specfit.backends.head_check import SUSPICIOUS
    from specfit.cli.live import load_backend
    from specfit.data import PROMPTS

    texts = prompts or PROMPTS / "tune.jsonl"
    target = ModelOptions(**asdict(target_options), drafter="none")
    with load_backend(target, cache=cache) as backend:
        report = _report(head, backend, texts, tokens)
    if as_json:
        print_json([{"head": str(head), **_row(s, fit)} for s, fit in report.rows])
    else:
        _print(report)
    if write and report.best:
        (head / OVERRIDES).write_text(json.dumps(report.best) + "\n", encoding="utf-8")
        print_note(f"written to {head / OVERRIDES}; loading the head reads it.")
    if max(fit.agreement for _, fit in report.rows) < SUSPICIOUS:
        raise typer.Exit(options.CHECK_FAILED)


def _report(head: Path, backend: TorchBackend, prompts: Path, num_tokens: int) -> HeadReport:
    from specfit.backends.eagle3_checkpoint import HeadCheckpoint
    from specfit.backends.head_check import check_head as try_wirings
    from specfit.backends.head_check import write_texts
    from specfit.cli.prompts import read_prompts

    checkpoint = HeadCheckpoint.load(head, backend.checkpoint.config)
    texts = [
        backend.tokenizer(prompt.text).input_ids for prompt in read_prompts(prompts)[:NUM_PROMPTS]
    ]
    with progress() as bars:
        bars.add_task("the target writes", total=None)
        written = write_texts(backend.target, texts, num_tokens)
        task = bars.add_task("trying wirings", total=None)
        embedding = backend.target.model.model.embed_tokens.weight
        return try_wirings(checkpoint, embedding, written, lambda s: bars.advance(task))


def _row(settings: dict[str, Any], fit: Fit) -> dict[str, Any]:
    return {
        "settings": settings,
        "step_0_agreement": fit.agreement,
        "tokens_per_pass": fit.tokens_per_pass,
    }


def _print(report: HeadReport) -> None:
    from specfit.backends.head_check import SUSPICIOUS

    rows = [
        (_said(settings), f"{fit.agreement:.2f}", f"{fit.tokens_per_pass:.2f}")
        for settings, fit in report.rows
    ]
    print_table(["wiring", "agreement at step 0", "tokens a pass (chain of 5)"], rows)
    if report.best:
        print_text(f"Fits better: {_said(report.best)}. Keep it with --write.")
    else:
        print_text("No other wiring is clearly better than the one that the files say.")
    if report.as_read.agreement < SUSPICIOUS:
        print_text(
            f"Agreement {report.as_read.agreement:.2f} is low: heads that fit reach 0.5 to 0.9. "
            f"Is it a head of another target?"
        )


def _said(settings: dict[str, Any]) -> str:
    return ", ".join(f"{k} {v}" for k, v in settings.items()) or "as the files say"
