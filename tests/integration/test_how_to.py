"""The how-to pages do what they say: each command that this machine has all for is run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sources import ROOT
from tests.test_docs import commands as commands_of

PAGES = ROOT / "docs" / "how-to"
RUNNABLE = (
    "explain-a-cycle.md",
    "install-and-report.md",
    "prefetch-and-overlap.md",
    "read-with-dataframes.md",
)
"""Pages that take seconds; the commands of the others are parsed by `tests/test_docs.py`."""
NOT_AT_HAND = re.compile(r"--install-completion|--host")
"""The user's shell; a disk behind host memory."""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the pages start from: a demo, its trace and profile."""
    folder = tmp_path_factory.mktemp("made")
    run(folder, "specfit demo --max-new-tokens 32")
    shutil.copytree(folder / "demo-results" / "trace", folder / "trace")
    shutil.copy(folder / "demo-results" / "profile.toml", folder)
    return folder


def commands(page: str) -> list[str]:
    """Return the commands of a page that can run here, in order."""
    lines = (line for line in commands_of(PAGES / page) if line.startswith("specfit "))
    return [line for line in lines if not NOT_AT_HAND.search(line)]


def run(folder: Path, command: str) -> None:
    """Run a command with the `specfit` of this interpreter; fail with what it said."""
    program = f'specfit() {{ "{sys.executable}" -m specfit.cli "$@"; }}\n'
    ran = subprocess.run(
        ["bash", "-e", "-c", program + command],
        cwd=folder,
        env={**os.environ, "COLUMNS": "100"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, f"{command}\n{ran.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE)
def test_every_command_of_the_page_runs(made: Path, tmp_path: Path, page: str) -> None:
    folder = tmp_path / "here"
    shutil.copytree(made, folder)
    for command in commands(page):
        run(folder, command)


@pytest.mark.parametrize("page", RUNNABLE)
def test_a_page_has_a_command_to_run(page: str) -> None:
    assert commands(page)
