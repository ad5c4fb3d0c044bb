"""The how-to pages do what they say: each command that this machine has all for is run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from specfit.data import PROMPTS, bundled_models
from tests.sources import ROOT
from tests.test_docs import commands as commands_of
from tests.unit.sim.importers.test_importers import write_foreign_files

PAGES = ROOT / "docs" / "how-to"
RUNNABLE = (
    "add-a-cost-model.md",
    "calibrate-a-machine.md",
    "compare-policies.md",
    "explain-a-cycle.md",
    "import-a-trace.md",
    "install-and-report.md",
    "prefetch-and-overlap.md",
    "read-with-dataframes.md",
    "run-qwen3-30b-a3b.md",
    "run-the-demo.md",
    "sweep-caches-and-links.md",
    "watch-decoding.md",
)
"""Pages that take minutes at most; the commands of others are parsed by `tests/test_docs.py`."""
NOT_AT_HAND = re.compile(
    r"--install-completion|replay trace .*--host lru|^specfit demo|--device cuda|/mnt/nvme"
    r"|synth-gsm8k|--engine"
)
"""The shell; a profile with a disk; what other tests run; a GPU; room for 54 GiB; a cluster."""
STAND_INS = {"/var/lib/node_exporter/": "", "--experts int4 --packed": "--experts int4:32 --packed"}
"""A place outside the folder; groups that the rows of the bundled model are too short for."""

SAVED_AS = re.compile(r"^```python\n(.*?)^```\n+Save it as `([\w.]+)`", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory, programs: Path) -> Path:
    """A folder with what the pages start from: a demo of three prompts, its trace and profile."""
    folder = tmp_path_factory.mktemp("made")
    heldout = (PROMPTS / "heldout.jsonl").read_text("utf-8").splitlines(keepends=True)
    (folder / "three.jsonl").write_text("".join(heldout[:3]), "utf-8")
    run(programs, folder, "specfit demo --prompts three.jsonl --max-new-tokens 32")
    shutil.copytree(folder / "demo-results" / "trace", folder / "trace")
    shutil.copy(folder / "demo-results" / "profile.toml", folder)
    (folder / "prompts.txt").write_text("Question: What is 3 + 4?\n", "utf-8")
    (folder / "prompts.jsonl").write_text('{"prompt": "Question: What is 3 + 4?"}\n', "utf-8")
    tiny = bundled_models()["tiny"]
    shutil.copytree(tiny, folder / "Qwen3-30B-A3B")  # the bundled model stands for the large one
    shutil.copytree(tiny / "eagle3", folder / "eagle3")
    write_foreign_files(folder)
    return folder


def commands(page: str) -> list[str]:
    """Return the commands of a page that can run here, in order."""
    lines = (line for line in commands_of(PAGES / page) if line.startswith("specfit "))
    return [line for line in lines if not NOT_AT_HAND.search(line)]


def made_by(commands: list[str]) -> list[str]:
    """Return the paths that commands write, which must be new."""
    return [path for command in commands for path in re.findall(r"--out (\S+)", command)]


def saved_files(page: str) -> list[tuple[str, str]]:
    """Return the Python that a page tells its reader to save, by file name."""
    found = SAVED_AS.findall((PAGES / page).read_text("utf-8"))
    return [(name, code) for code, name in found]


def run(programs: Path, folder: Path, command: str) -> None:
    """Run a command with the `specfit` of this interpreter; fail with what it said."""
    path = os.pathsep.join([str(programs), os.environ["PATH"]])
    ran = subprocess.run(
        ["bash", "-e", "-c", command],
        cwd=folder,
        env={**os.environ, "PATH": path, "COLUMNS": "100"},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, f"{command}\n{ran.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize("page", RUNNABLE)
def test_every_command_of_the_page_runs(
    made: Path, programs: Path, tmp_path: Path, page: str
) -> None:
    folder = tmp_path / "here"
    shutil.copytree(made, folder)
    for path in made_by(commands(page)):
        if (folder / path).is_dir():
            shutil.rmtree(folder / path)
    for name, code in saved_files(page):
        (folder / name).write_text(code, "utf-8")
    for command in commands(page):
        for place, here in STAND_INS.items():
            command = command.replace(place, here)
        run(programs, folder, command)


@pytest.mark.slow
def test_the_snippet_behind_transformers_runs() -> None:
    page = (PAGES / "use-with-transformers.md").read_text("utf-8")
    [code] = re.findall(r"^```py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert "path/to/a/qwen3-moe" in code
    code = code.replace("path/to/a/qwen3-moe", str(bundled_models()["tiny"]))
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("It was a dark night, and the road ")


@pytest.mark.parametrize("page", RUNNABLE)
def test_a_page_has_a_command_to_run(page: str) -> None:
    assert commands(page)
