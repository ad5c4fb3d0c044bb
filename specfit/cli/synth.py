"""`specfit synth`: a synthetic trace of Qwen3-30B-A3B, drawn to meet published measurements."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specfit.cli import options
from specfit.cli.console import print_json, print_note, print_table, progress

if TYPE_CHECKING:
    from specfit.sim.synth.fit import Line

DEFAULT_PLANS = ("eagle3:depth=4,top_k=8,max_nodes=32", "eagle3:depth=8,top_k=2", "chain:depth=8")

TaskName = Annotated[
    str, typer.Option("--task", "-t", help="[bold]gsm8k[/bold] or [bold]cnn-dm[/bold].")
]
Out = Annotated[Path, typer.Option("--out", "-o", help="New folder for the trace.")]
NumPrompts = Annotated[int, typer.Option("--prompts", min=1, help="Texts to draw.")]
NumTokens = Annotated[
    int | None,
    typer.Option("--max-new-tokens", "-n", min=2, help="Tokens a text; by default the task's."),
]
Plans = Annotated[
    list[str],
    typer.Option("--plans", help="What a policy may ask for: eagle3:depth=4,top_k=8; several."),
]
ShowFit = Annotated[
    bool, typer.Option("--show-fit", help="Measure the trace, beside what was published.")
]
Overconfidence = Annotated[
    float,
    typer.Option(
        "--overconfidence", help="Claimed draft probabilities to this power; 1 is calibrated."
    ),
]


def synth(
    task: TaskName,
    out: Out,
    prompts: NumPrompts = 8,
    max_new_tokens: NumTokens = None,
    plans: Plans = [],  # noqa: B006 - typer copies
    overconfidence: Overconfidence = 1.0,
    seed: options.Seed = 0,
    show_fit: ShowFit = False,
    as_json: options.Json = False,
) -> None:
    """Draw a [bold]synthetic[/bold] trace at the size of Qwen3-30B-A3B: no model, no GPU.

    Example: specfit synth --task gsm8k --out synth-gsm8k --seed 1
    """
    from specfit.cli.outputs import keeping_prompts
    from specfit.cli.specs import plan_from
    from specfit.sim.synth.parameters import task_named
    from specfit.sim.synth.trace import write_synthetic

    drawn = tuple(plan_from(spec) for spec in plans or DEFAULT_PLANS)
    chosen = task_named(task)
    num_tokens = max_new_tokens or chosen.text_tokens
    with keeping_prompts(out), progress() as bars:
        bar = bars.add_task("drawing texts", total=prompts * num_tokens)
        write_synthetic(
            out,
            chosen,
            drawn,
            seed=seed,
            num_prompts=prompts,
            max_new_tokens=num_tokens,
            overconfidence=overconfidence,
            on_position=lambda index, done: bars.update(bar, completed=index * num_tokens + done),
        )
    if show_fit:
        print_fit(out, as_json=as_json)
    elif as_json:
        found = {"origin": "synthetic", "task": task, "num_prompts": prompts, "seed": seed}
        print_json([{"trace": str(out), **found}])
    print_note(
        f"{prompts} synthetic texts drawn in {out}. Next: specfit replay {out} "
        f"--profile pcie4-x16 --policy autoregressive --policy specfit"
    )


def print_fit(trace: Path, *, as_json: bool) -> None:
    """Print each target beside what a trace of `specfit synth` has, and how many are met."""
    from specfit.sim.synth.fit import fit_lines
    from specfit.sim.trace import TraceReader

    lines = fit_lines(TraceReader(trace))
    if as_json:
        print_json(_row(line) for line in lines)
        return
    marks = {True: "yes", False: "no", None: ""}
    rows = [
        [
            line.what,
            "-" if line.is_met is None else f"{line.target:.3f}",
            f"{line.found:.3f}",
            marks[line.is_met],
            line.source,
        ]
        for line in lines
    ]
    met = [line.is_met for line in lines if line.is_met is not None]
    print_table(
        ["", "published", "synthetic", "near", "source"],
        rows,
        title=f"fit of {trace.name}: synthetic",
        note=f"{sum(met)} of {len(met)} targets are met: within 10 %, hit rates within 2 points.",
    )


def _row(line: Line) -> dict[str, Any]:
    """Return a line of the fit; where nothing was published the target is None."""
    return {
        "measure": line.what.strip(),
        "published": None if line.is_met is None else float(line.target),
        "synthetic": float(line.found),
        "is_met": None if line.is_met is None else bool(line.is_met),
        "source": line.source,
    }
