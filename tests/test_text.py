"""What no file of the repository may hold: paths of one machine, unfinished marks, broken text."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.sources import ROOT, tracked_files

BINARY = {".parquet", ".png", ".safetensors", ".npz", ".gz", ".jpg"}
RULED_OUT = {
    "a path of one machine": r"/work/|/root/|/home/\w|/tmp/\w|\.\./shared|\.pyenv|/opt/\w",
    "a registry's host": r"pypi\.org|pythonhosted|download\.pytorch",
    "an unfinished mark": r"\b(TODO|FIXME|XXX|TBD|HACK)\b",
    "a tracker's number": r"\b[Ii]ssues? #?\d+\b|\bissues show\b",
    "a merge conflict": r"^(<{7}|>{7}) ",
    "who wrote it with what": r"\b(Claude|Anthropic|ChatGPT|Copilot|Codex)\b",
}
TEXTS = [path for path in tracked_files() if path.suffix not in BINARY]


def text_of(path: Path) -> str:
    return path.read_text("utf-8")


@pytest.mark.parametrize("what", RULED_OUT)
def test_no_file_mentions(what: str) -> None:
    pattern = re.compile(RULED_OUT[what], re.MULTILINE)
    found = [
        f"{path.relative_to(ROOT)}: {match[0]!r}"
        for path in TEXTS
        if path.name != "test_text.py" and (match := pattern.search(text_of(path)))
    ]
    assert found == []


def test_every_text_ends_with_one_newline_and_has_no_carriage_return() -> None:
    written = [path for path in TEXTS if ROOT / "specfit" / "data" not in path.parents]
    texts = {path: text_of(path) for path in written}
    wrong = [p for p, text in texts.items() if "\r" in text or (text and not text.endswith("\n"))]
    assert [str(path.relative_to(ROOT)) for path in wrong] == []


def test_there_is_no_file_for_leftovers() -> None:
    names = {"utils", "util", "helpers", "misc", "common", "stuff"}
    assert [path for path in TEXTS if path.suffix == ".py" and path.stem in names] == []


def test_no_source_file_is_long() -> None:
    code = [path for path in TEXTS if path.suffix == ".py"]
    lengths = {str(p.relative_to(ROOT)): text_of(p).count("\n") for p in code}
    assert {name: n for name, n in lengths.items() if n >= 400} == {}
