"""`specfit watch`: decoding with what goes on inside it, live."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specfit.cli import options
from specfit.cli.console import live_console, print_note, print_text
from specfit.cli.live_options import LiveOptions
from specfit.cli.option_groups import with_options

if TYPE_CHECKING:
    from specfit.cli.live import Live
    from specfit.cli.prompts import Prompt
    from specfit.core.decode import Observer
    from specfit.core.policy import Policy

Counters = Annotated[
    Path | None,
    typer.Option("--counters", help="File to keep up to date with counters for Prometheus."),
]


@with_options
def watch(
    *,
    policy: options.OnePolicy = "specfit",
    settings: options.Settings = [],  # noqa: B006 - typer copies
    prompt: options.Text = None,
    prompts: options.PromptFile = None,
    max_new_tokens: options.MaxNewTokens = 128,
    live_options: LiveOptions,
    counters: Counters = None,
    as_json: options.Json = False,
) -> None:
    """Watch decoding: the text, which tokens were drafted, where the time goes, what plain costs.

    Plain decoding is not run beside it: its speed is estimated from what it would copy. Without a
    terminal there is a line a second on stderr, and the text alone on stdout.

    Example: specfit watch --link pcie4 --cache lru:50% --prompt "Once upon a time"
    """
    from specfit.cli.counters import CounterFile
    from specfit.cli.live import open_live
    from specfit.cli.outputs import check_can_write
    from specfit.cli.prompts import prompts_from
    from specfit.cli.specs import policy_from

    if counters is not None:
        check_can_write(counters)
    texts = prompts_from(prompt, prompts)
    chosen = policy_from(policy, settings)
    with open_live(live_options) as live:
        extra: list[Observer] = []
        if counters is not None:
            extra.append(CounterFile(counters, live.backend.geometry.expert_bytes))
        for text in texts:
            watch_one(live, chosen, text, max_new_tokens, extra, as_json=as_json)


def watch_one(
    live: Live,
    policy: Policy,
    prompt: Prompt,
    max_new_tokens: int,
    extra: list[Observer],
    *,
    as_json: bool,
) -> None:
    """Decode one text and show it as it comes."""
    from specfit.cli.watch_observers import Log, Panel, Rows
    from specfit.cli.watch_panel import Run
    from specfit.core.cache import make_cache
    from specfit.sim.plain_estimate import PlainEstimate

    geometry = live.backend.geometry
    run = Run(live.text, PlainEstimate(make_cache(live.options.cache, geometry), live.profile))
    request = live.request(prompt.text, max_new_tokens)
    title = (
        f"{prompt.id}: {policy.to_spec()['name']}, cache {live.options.cache}, {live.link_label}"
    )
    console = live_console()
    try:
        if as_json:
            live.loop(policy, [run, Rows(run), *extra]).run(request)
        elif console is None:
            print_note(title)
            live.loop(policy, [run, Log(run), *extra]).run(request)
            sys.stdout.write("".join(piece for piece, _ in run.pieces) + "\n")
            sys.stdout.flush()
        else:
            from rich.live import Live as LiveDisplay

            with LiveDisplay(console=console, auto_refresh=False) as display:
                live.loop(policy, [run, Panel(run, display, title), *extra]).run(request)
    except KeyboardInterrupt:
        if console is None and not as_json:
            print_text("".join(piece for piece, _ in run.pieces))
        kept = f"the text above is the target's own so far ({run.num_tokens} tokens)"
        raise KeyboardInterrupt(kept) from None
