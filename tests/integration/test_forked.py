"""The program that is forked for the tests imports what the installed one can, and no more."""

from __future__ import annotations

import subprocess
from pathlib import Path


def test_a_command_imports_no_module_of_the_folder_that_it_is_run_in(
    programs: Path, tmp_path: Path
) -> None:
    """A documented command that needed one would fail for every reader."""
    (tmp_path / "aside.py").write_text("", "utf-8")
    (tmp_path / "my.py").write_text("import aside\n", "utf-8")
    command = [str(programs / "specfit"), "check", "policy", "my.py:Mine"]
    ran = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert ran.returncode == 2
    assert "No module named 'aside'" in " ".join(ran.stderr.split())
