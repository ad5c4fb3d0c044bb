"""The tutorials do what they say, command by command, in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.sources import ROOT

TUTORIALS = ROOT / "docs" / "tutorial"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAVED_AS = re.compile(r"Save this as `([\w.]+)`[^`]*:\s*\Z")
SET_UP = ("make demo\n", "source .venv/bin/activate\n")
"""What makes the environment that these tests run in."""

NOT_RECORDED = "specfit replay trace --policy eagle3:depth=8,top_k=10\n"
"""The tutorial asks for it to be refused."""

MADE = {
    "index.md": {"trace", "cycle.html", "my.py", "profile.toml"},
    "your-first-policy.md": {
        "trace",
        "careful.py",
        "test_careful.py",
        "first.png",
        "second.png",
        "careful.jsonl",
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("page", MADE)
def test_every_command_of_the_tutorial_runs(programs: Path, tmp_path: Path, page: str) -> None:
    text = (TUTORIALS / page).read_text("utf-8")
    environment = {**os.environ, "PATH": os.pathsep.join([str(programs), os.defpath])}
    folder = tmp_path / "empty"
    folder.mkdir()
    for block in BLOCK.finditer(text):
        language, code = block.groups()
        if language == "python":
            saved = SAVED_AS.search(text[: block.start()])
            assert saved, "a Python block of the tutorial is saved under a name"
            (folder / saved[1]).write_text(code, "utf-8")
        elif code not in SET_UP:
            ran = subprocess.run(
                ["bash", "-e", "-c", code],
                cwd=folder,
                env=environment,
                capture_output=True,
                text=True,
            )
            assert ran.returncode == (2 if code == NOT_RECORDED else 0), f"{code}\n{ran.stderr}"
    assert MADE[page] <= {path.name for path in folder.iterdir()}


@pytest.mark.parametrize("block", [*SET_UP, NOT_RECORDED])
def test_the_tutorial_holds_what_is_treated_apart(block: str) -> None:
    assert block in [code for _, code in BLOCK.findall((TUTORIALS / "index.md").read_text("utf-8"))]
