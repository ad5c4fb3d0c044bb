"""Chatting: every answer is what decoding the whole conversation gives, drafter by drafter."""

from __future__ import annotations

import json
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from specfit.backends import load
from specfit.cli.chat import Conversation
from specfit.cli.main import app
from specfit.core.errors import InvalidInputError
from specfit.core.noise import Sampling
from specfit.data import bundled_models

COMMON = ["--profile", "pcie4-x16", "--link", "none", "--max-new-tokens", "10", "--cache", "lru:16"]
LINES = "Question: What is 3 + 4? Answer:\n\n In the beginning\n"


def run(*arguments: str) -> list[dict[str, str]]:
    ran = CliRunner().invoke(app, ["chat", *COMMON, "--json", *arguments], input=LINES)
    assert ran.exit_code == 0, ran.output
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_turns_follow_one_another_whatever_drafts() -> None:
    rows = run()
    assert [row["user"] for row in rows] == [LINES.splitlines()[0], LINES.splitlines()[2]]
    assert run("--drafter", "ngram", "--policy", "eagle3:depth=3,top_k=2,max_nodes=6") == rows
    first = rows[0]
    assert first["kept_tokens"] == 0
    assert rows[1]["kept_tokens"] > int(first["prompt_tokens"]), "the first turn was not run again"
    ran = CliRunner().invoke(
        app,
        ["decode", *COMMON, "--json", "--drafter", "none", "--prompt", first["user"]],
    )
    assert json.loads(ran.stdout)["text"] == first["answer"]


def test_text_is_shown_and_speed_noted() -> None:
    ran = CliRunner().invoke(app, ["chat", *COMMON, "--drafter", "none"], input="Hello\n")
    assert ran.exit_code == 0
    assert "tokens/s without prefill" in ran.stderr


def test_an_answer_takes_what_the_context_has_left() -> None:
    """512 tokens in all: a second turn of 256 does not fit, a shorter one does."""
    with load(bundled_models()["tiny"]) as backend:
        live = SimpleNamespace(
            backend=backend, options=SimpleNamespace(sampling=Sampling()), text=str
        )
        conversation = Conversation(live)
        first = conversation.ask("Hello", 256)
        assert first.max_new_tokens == 256
        conversation.add_answer((100,) * 256)
        second = conversation.ask("and more", 256)
        assert len(second.prompt) + second.max_new_tokens == backend.max_context == 512
        conversation.add_answer((100,) * second.max_new_tokens)
        with pytest.raises(InvalidInputError, match="must fit in a context of 512"):
            conversation.ask("no room", 256)


@pytest.mark.parametrize("option", [["--device", "cuda:99"], ["--drafter", "nothing"]])
def test_bad_options_are_one_line(option: list[str]) -> None:
    ran = CliRunner().invoke(app, ["chat", *COMMON, *option], input="Hello\n")
    assert ran.exit_code == 2
    assert ran.stderr.count("error:") == 1
