"""`specfit decode`: the target's own text, sooner."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from specfit.cli import options
from specfit.cli.console import print_json, print_note, progress
from specfit.cli.live_options import LiveOptions
from specfit.cli.option_groups import with_options

if TYPE_CHECKING:
    from specfit.cli.live import Live
    from specfit.cli.prompts import Prompt
    from specfit.core.backend import Request
    from specfit.core.decode import DecodeResult, Observer
    from specfit.core.policy import Policy
    from specfit.sim.metrics import Metrics


@with_options
def decode(
    *,
    policy: options.OnePolicy = "specfit",
    settings: options.Settings = [],  # noqa: B006 - typer copies
    prompt: options.Text = None,
    prompts: options.PromptFile = None,
    max_new_tokens: options.MaxNewTokens = 128,
    live_options: LiveOptions,
    as_json: options.Json = False,
) -> None:
    """Continue a text with the target's own tokens, whatever the policy: stdout is the text alone.

    Example: specfit decode --cache lru:25% --prompt "Question: What is 3 + 4? Answer:"
    """
    from specfit.cli.live import open_live
    from specfit.cli.prompts import prompts_from
    from specfit.cli.specs import policy_from

    texts = prompts_from(prompt, prompts)
    chosen = policy_from(policy, settings)
    with open_live(live_options) as live:
        requests = [live.request(text.text, max_new_tokens) for text in texts]
        for text, request in zip(texts, requests, strict=True):
            result = _decode_one(live, chosen, text.id, request, is_shown=not as_json)
            if as_json:
                print_json([json_row(live, chosen, text, result)])
            else:
                print_note(statistics_line(live, result))


def _decode_one(
    live: Live, policy: Policy, label: str, request: Request, *, is_shown: bool
) -> DecodeResult:
    from specfit.cli.textstream import TextDisplay, TokenBar

    display = TextDisplay(live.text, sys.stdout)
    observers: list[Observer] = [display] if is_shown else []
    is_streaming = is_shown and sys.stdout.isatty()
    try:
        with nullcontext() if is_streaming else progress(is_named=False) as bars:
            if bars is not None:
                observers.append(TokenBar(bars, label))
            return live.loop(policy, observers).run(request)
    except KeyboardInterrupt:
        if not is_shown:
            raise
        display.end()
        kept = f"the text above is the target's own so far ({display.num_tokens} tokens)"
        raise KeyboardInterrupt(kept) from None


def statistics_line(live: Live, result: DecodeResult) -> str:
    """Return one line on how fast a text came and what was copied."""
    from specfit.sim.metrics import measure, num_reads

    m = measure([result], live.backend.geometry.expert_bytes)
    tokens = f"{len(result.tokens)} tokens ({result.stop_reason})"
    cache = f"cache {live.options.cache}"
    if live.options.host is not None:
        cache += f", host {live.options.host} ({num_reads([result])} experts read from disk)"
    return f"{tokens}, {_figures(m)}; {cache}, {live.link_label}"


def _figures(m: Metrics) -> str:
    """Say how fast the cycles were and what they copied; that there was none, where so."""
    if not m.num_cycles:
        return "no cycle: the pass over the prompt gave the text"
    return (
        f"{m.tokens_per_s:.1f} tokens/s without prefill, "
        f"{m.committed_per_cycle:.2f} committed and {m.verified_per_cycle:.2f} verified a cycle, "
        f"{m.copied_per_token:.1f} experts copied a token{_ahead(m)}, hit rate {m.hit_rate:.2f}"
    )


def _ahead(m: Metrics) -> str:
    """Say what was copied ahead, if anything was."""
    if not m.num_prefetched:
        return ""
    return f" ({m.num_prefetched} ahead, {m.num_wasted} of them for nothing)"


def json_row(live: Live, policy: Policy, prompt: Prompt, result: DecodeResult) -> dict[str, Any]:
    """Return everything about one decoded text."""
    from specfit.cli.manifest import manifest
    from specfit.report.measures import COUNTS, json_values
    from specfit.sim.metrics import figure_or_none, measure, num_reads

    m = measure([result], live.backend.geometry.expert_bytes)
    return {
        "id": prompt.id,
        "prompt": prompt.text,
        "text": live.text(result.tokens),
        "tokens": list(result.tokens),
        "stop_reason": result.stop_reason,
        **json_values(COUNTS, m),
        "num_prefetched": m.num_prefetched,
        "num_wasted": m.num_wasted,
        "num_reads": num_reads([result]),
        "tokens_per_s": figure_or_none(m.tokens_per_s),
        **manifest(policy=policy.to_spec(), **live.specs()),
    }
