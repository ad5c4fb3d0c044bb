"""`specfit record`: a trace of real decoding, from which other policies can be replayed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specfit.cli import options
from specfit.cli.console import print_json, print_note, progress
from specfit.cli.live_options import LiveOptions
from specfit.cli.option_groups import with_options

if TYPE_CHECKING:
    from rich.progress import Progress

    from specfit.cli.live import Live
    from specfit.core.backend import Request
    from specfit.core.policy import Policy
    from specfit.core.tree import DraftPlan
    from specfit.sim.trace import TraceWriter

Out = Annotated[Path, typer.Option("--out", "-o", help="New folder for the trace.")]
Plans = Annotated[
    list[str],
    typer.Option(
        "--plans",
        help="Record all that a policy may ask for at every position: specfit, eagle3:depth=6, "
        "chain:depth=8; give several.",
    ),
]
States = Annotated[
    bool,
    typer.Option(
        "--states",
        help="Keep the draft head's hidden states, for predictors that look at them: "
        "hidden-probe, target-routers.",
    ),
]


@with_options
def record(
    *,
    out: Out,
    prompts: options.PromptFile = None,
    prompt: options.Text = None,
    plans: Plans = [],  # noqa: B006 - typer copies
    states: States = False,
    policy: options.OnePolicy = "specfit",
    settings: options.Settings = [],  # noqa: B006 - typer copies
    max_new_tokens: options.MaxNewTokens = 128,
    live_options: LiveOptions,
    as_json: options.Json = False,
) -> None:
    """Record a policy cycle by cycle; or, with --plans, all that other policies could ask for.

    Example: specfit record -o trace --prompt "Question: What is 3 + 4?" --plans chain:depth=5
    """
    from specfit.cli.live import open_live
    from specfit.cli.outputs import check_can_write, keeping_prompts
    from specfit.cli.prompts import prompts_from
    from specfit.cli.specs import plan_from, policy_from

    check_can_write(out)
    texts = prompts_from(prompt, prompts)
    chosen = policy_from(policy, settings)
    drawn = tuple(plan_from(spec) for spec in plans)
    with open_live(live_options) as live:
        requests = [live.request(text.text, max_new_tokens) for text in texts]
        keeps_states = states or live.inputs.predictor.needs_states
        width = live.backend.keep_states() if keeps_states else 0
        with keeping_prompts(out):
            if drawn:
                with progress() as bars:
                    record_positions(live, requests, drawn, out, bars, width)
            else:
                record_run(live, requests, chosen, out, width)
    if as_json:
        kind = "positions" if drawn else "run"
        print_json([{"trace": str(out), "kind": kind, "num_prompts": len(requests)}])
    print_note(f"{len(requests)} prompts recorded in {out}. Next: specfit replay {out}")


def record_run(
    live: Live, requests: Sequence[Request], policy: Policy, out: Path, state_width: int = 0
) -> None:
    """Decode the requests and write what happened in each cycle, with states of this width."""
    from specfit.sim.record_run import RunRecorder

    with run_writer(live, policy, out, state_width) as writer, progress() as bars:
        loop = live.loop(policy, [RunRecorder(writer)])
        for request in bars.track(requests, description="recording"):
            loop.run(request)


def run_writer(
    live: Live, policy: Policy, out: Path, state_width: int = 0
) -> AbstractContextManager[TraceWriter]:
    """Return the writer of a new run trace."""
    from specfit.sim.trace import TraceWriter, metadata_of

    metadata = metadata_of(
        live.backend,
        "run",
        hardware=live.profile,
        specs={"policy": policy.to_spec(), **live.specs()},
        sampling=live.options.sampling,
        state_width=state_width,
    )
    return TraceWriter.create(out, metadata)


def record_positions(
    live: Live,
    requests: Sequence[Request],
    plans: tuple[DraftPlan, ...],
    out: Path,
    bars: Progress,
    state_width: int = 0,
) -> None:
    """Write, for every position of the target's texts, all that the plans draw there."""
    from specfit.sim import record_positions as recording
    from specfit.sim.trace import TraceWriter, metadata_of

    metadata = metadata_of(
        live.backend,
        "positions",
        plans=plans,
        hardware=live.profile,
        specs=live.specs(),
        sampling=live.options.sampling,
        state_width=state_width,
    )
    lengths = [request.max_new_tokens for request in requests]
    task = bars.add_task("recording every position", total=sum(lengths))
    with TraceWriter.create(out, metadata) as writer:
        recording.record_positions(
            live.backend,
            requests,
            plans,
            writer,
            on_position=lambda i, done: bars.update(task, completed=sum(lengths[:i]) + done),
        )
    bars.update(task, completed=sum(lengths))
