"""Notebooks run from top to bottom, hold no output, and their commands exist."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sources import ROOT

NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.ipynb"))


def code_of(notebook: Path) -> list[str]:
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_runs(notebook: Path) -> None:
    """As a notebook does: the cells are no file, and `__main__` holds what they define."""
    program = "\n\n".join(code_of(notebook))
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert "specfit" in ran.stdout


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.name)
def test_a_notebook_is_kept_without_outputs(notebook: Path) -> None:
    cells = json.loads(notebook.read_text("utf-8"))["cells"]
    assert all(not cell.get("outputs") and not cell.get("execution_count") for cell in cells)


def test_there_is_a_notebook() -> None:
    assert NOTEBOOKS
