"""`specfit watch` with the bundled model: the text is the one that `specfit decode` gives."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from specfit.cli.main import app
from specfit.core.decode import DecodeLoop
from specfit.testing.examples import example_profile

PROMPT = "It was a dark night, and the road"


def run(*arguments: object):
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    path = tmp_path_factory.mktemp("profile") / "machine.toml"
    replace(example_profile(), level_s=1e-4, first_level_s=1e-4, copy_latency_s=1e-5).write(path)
    return ["--prompt", PROMPT, "-n", "12", "-c", "lru:50%", "--profile", str(path)]


def test_a_watched_text_is_the_decoded_text(given: list[str], tmp_path: Path, monkeypatch):
    counters = tmp_path / "specfit.prom"
    decoded = run("decode", *given)
    logged = run("watch", *given, "--counters", counters)
    assert logged.exit_code == 0, logged.stderr
    assert logged.stdout == decoded.stdout
    assert re.search(r"cycle \d+: 12 tokens; .* plain decoding [\d.]+ estimated", logged.stderr)
    assert "specfit_committed_tokens_total 11" in counters.read_text("utf-8")
    rows = [json.loads(line) for line in run("watch", *given, "--json").stdout.splitlines()]
    assert "".join(row["text"] for row in rows) in decoded.stdout
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    shown = run("watch", *given)
    assert shown.exit_code == 0, shown.stderr
    last = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", shown.stdout).split("prompt: specfit")[-1]
    lines = last.splitlines()[1:]
    assert max(map(len, lines)) <= 40
    assert "".join(lines[: lines.index("")]).replace(" ", "") in decoded.stdout.replace(" ", "")


def test_an_interrupted_watch_says_what_is_kept(given: list[str], monkeypatch):
    whole, calls = DecodeLoop._cycle, []

    def interrupt_third(self, *arguments):
        calls.append(None)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return whole(self, *arguments)

    monkeypatch.setattr(DecodeLoop, "_cycle", interrupt_third)
    made = run("watch", *given)
    assert made.exit_code == 130
    assert re.search(
        r"interrupted; the text above is the target's own so far \(\d+ tok", made.stderr
    )
    assert made.stdout.strip()
