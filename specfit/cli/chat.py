"""`specfit chat`: several turns with the target, each the target's own text."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from specfit.cli import options
from specfit.cli.console import print_json, print_note
from specfit.cli.live_options import LiveOptions, with_options

if TYPE_CHECKING:
    from specfit.cli.live import Live
    from specfit.core.backend import Request
    from specfit.core.policy import Policy


@with_options
def chat(
    *,
    policy: options.OnePolicy = "specfit",
    settings: options.Settings = [],  # noqa: B006 - typer copies
    max_new_tokens: options.MaxNewTokens = 256,
    live_options: LiveOptions,
    as_json: options.Json = False,
) -> None:
    """Answer lines from the terminal until it ends (Ctrl-D); Ctrl-C ends an answer.

    A model with a chat template gets its turns in it; another one has its text continued. Every
    turn runs the whole conversation as its prompt.

    Example: specfit chat --cache lru:25%
    """
    from specfit.cli.live import open_live
    from specfit.cli.specs import policy_from

    chosen = policy_from(policy, settings)
    with open_live(live_options) as live:
        conversation = Conversation(live)
        for line in lines():
            request = conversation.ask(line, max_new_tokens)
            answer, statistics = _answer(live, chosen, request, is_shown=not as_json)
            conversation.add_answer(answer)
            if as_json:
                print_json([{"user": line, "answer": live.text(answer)}])
            else:
                print_note(statistics)


class Conversation:
    """The turns so far, as the target sees them.

    Parameters
    ----------
    live : Live
        The loaded model.
    """

    def __init__(self, live: Live) -> None:
        self._live = live
        self._messages: list[dict[str, str]] = []
        self._tokens: list[int] = []
        self._has_template = bool(live.backend.tokenizer.chat_template)

    def ask(self, text: str, max_new_tokens: int) -> Request:
        """Return the request that answers a line.

        Raises
        ------
        InvalidInputError
            The conversation does not fit in the context any more.
        """
        from specfit.core.backend import Request

        tokenizer: Any = self._live.backend.tokenizer
        self._messages.append({"role": "user", "content": text})
        if self._has_template:
            made = tokenizer.apply_chat_template(self._messages, add_generation_prompt=True)
            self._tokens = list(getattr(made, "input_ids", made))
        else:
            self._tokens += tokenizer(text, verbose=False).input_ids
        sampling = self._live.options.sampling
        request = Request(
            tuple(self._tokens), max_new_tokens, self._live.backend.stop_ids, sampling
        )
        self._live.backend.check_request(request)
        return request

    def add_answer(self, tokens: tuple[int, ...]) -> None:
        """Take note of an answer, whole or cut."""
        self._messages.append({"role": "assistant", "content": self._live.text(tokens)})
        self._tokens += [t for t in tokens if t not in self._live.backend.stop_ids]


def lines() -> Iterator[str]:
    """Yield what is typed, line by line; a prompt is shown on a terminal only."""
    is_terminal = sys.stdin.isatty()
    while True:
        if is_terminal:
            sys.stderr.write("> ")
            sys.stderr.flush()
        line = sys.stdin.readline()
        if not line:
            return
        if line.strip():
            yield line.rstrip("\n")


def _answer(
    live: Live, policy: Policy, request: Request, *, is_shown: bool
) -> tuple[tuple[int, ...], str]:
    """Decode an answer; return its tokens and a line on its speed."""
    from specfit.cli.textstream import TextDisplay
    from specfit.core.backend import Prefill

    display = TextDisplay(live.text, sys.stdout)
    tokens: list[int] = []
    seconds = 0.0
    try:
        for event in live.loop(policy, [display] if is_shown else []).stream(request):
            if isinstance(event, Prefill):
                tokens.append(event.first_token)
            else:
                tokens.extend(event.outcome.committed)
                seconds += event.timings.cycle_s
    except KeyboardInterrupt:
        if is_shown:
            display.end()
    speed = f"{(len(tokens) - 1) / seconds:.1f} tokens/s without prefill" if seconds else "no cycle"
    return tuple(tokens), f"{len(tokens)} tokens, {speed}; {live.link_label}"
