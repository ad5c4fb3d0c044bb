"""The tutorial of the first policy does what it says, command by command, in an empty folder."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sources import ROOT

PAGE = ROOT / "docs" / "tutorial" / "your-first-policy.md"
BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAVED_AS = re.compile(r"Save this as `([\w.]+)`:\s*\Z")


@pytest.mark.slow
def test_every_command_of_the_tutorial_runs(tmp_path: Path) -> None:
    text = PAGE.read_text("utf-8")
    environment = {**os.environ, "PATH": os.pathsep.join([str(_shims(tmp_path)), os.defpath])}
    folder = tmp_path / "empty"
    folder.mkdir()
    for block in BLOCK.finditer(text):
        language, code = block.groups()
        if language == "python":
            saved = SAVED_AS.search(text[: block.start()])
            assert saved, "a Python block of the tutorial is saved under a name"
            (folder / saved[1]).write_text(code, "utf-8")
            continue
        ran = subprocess.run(
            ["bash", "-e", "-c", code], cwd=folder, env=environment, capture_output=True, text=True
        )
        assert ran.returncode == 0, f"{code}\n{ran.stdout}\n{ran.stderr}"
    made = {path.name for path in folder.iterdir()}
    assert {"trace", "careful.py", "test_careful.py", "first.png", "second.png"} <= made
    assert (folder / "careful.jsonl").read_text("utf-8").count("\n") == 1


def _shims(tmp_path: Path) -> Path:
    """Return a folder with the `specfit` of this interpreter."""
    folder = tmp_path / "bin"
    folder.mkdir()
    program = folder / "specfit"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m specfit.cli "$@"\n', "utf-8")
    program.chmod(0o755)
    return folder
