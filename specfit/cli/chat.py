"""`specfit chat`: several turns with the target, each the target's own text."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from specfit.cli import options
from specfit.cli.console import print_json, print_note
from specfit.cli.live_options import LiveOptions
from specfit.cli.option_groups import with_options

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

    A model with a chat template gets its turns in it; another one has its text continued. What a
    turn has in common with the one before is not run again.

    Example: specfit chat --cache lru:25%
    """
    from specfit.cli.live import open_live
    from specfit.cli.specs import policy_from

    chosen = policy_from(policy, settings)
    with open_live(live_options) as live:
        conversation = Conversation(live)
        for line in lines():
            request = conversation.ask(line, max_new_tokens)
            turn = _answer(live, chosen, request, is_shown=not as_json)
            conversation.add_answer(turn.tokens)
            if as_json:
                print_json([{"user": line, "answer": live.text(turn.tokens), **turn.counts}])
            else:
                print_note(f"{turn.statistics}; {live.link_label}")


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
        """Return the request that answers a line, with as many tokens as the context has left.

        Raises
        ------
        InvalidInputError
            The conversation does not fit in the context any more.
        """
        from specfit.core.backend import Request

        backend = self._live.backend
        tokenizer: Any = backend.tokenizer
        self._messages.append({"role": "user", "content": text})
        if self._has_template:
            made = tokenizer.apply_chat_template(self._messages, add_generation_prompt=True)
            self._tokens = list(getattr(made, "input_ids", made))
        else:
            self._tokens += tokenizer(text, verbose=False).input_ids
        room = backend.max_context - len(self._tokens)
        request = Request(
            tuple(self._tokens),
            max(1, min(max_new_tokens, room)),
            backend.stop_ids,
            self._live.options.sampling,
            keeps_prefix=True,
        )
        backend.check_request(request)
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


@dataclass
class Turn:
    """An answer as it comes.

    Parameters
    ----------
    tokens : tuple of int
        The answer so far.
    num_prompt, num_kept : int
        Tokens of the conversation before it, and those that were not run again.
    seconds : float
        Of its cycles.
    """

    tokens: tuple[int, ...] = ()
    num_prompt: int = 0
    num_kept: int = 0
    seconds: float = 0.0

    @property
    def counts(self) -> dict[str, int]:
        """Tokens of the conversation, and those that were kept."""
        return {"prompt_tokens": self.num_prompt, "kept_tokens": self.num_kept}

    @property
    def statistics(self) -> str:
        """One line on its speed."""
        decoded = len(self.tokens) - 1
        speed = f"{decoded / self.seconds:.1f} tokens/s without prefill" if self.seconds else ""
        return (
            f"{len(self.tokens)} tokens, {speed or 'no cycle'}; "
            f"{self.num_kept} of {self.num_prompt} tokens before it were kept"
        )


def _answer(live: Live, policy: Policy, request: Request, *, is_shown: bool) -> Turn:
    """Decode an answer, to its end or until Ctrl-C."""
    from specfit.cli.textstream import TextDisplay
    from specfit.core.backend import Prefill

    display = TextDisplay(live.text, sys.stdout)
    turn = Turn(num_prompt=len(request.prompt))
    try:
        for event in live.loop(policy, [display] if is_shown else []).stream(request):
            if isinstance(event, Prefill):
                turn.tokens, turn.num_kept = (event.first_token,), event.num_kept
            else:
                turn.tokens += event.outcome.committed
                turn.seconds += event.timings.cycle_s
    except KeyboardInterrupt:
        if is_shown:
            display.end()
    return turn
