"""What every result row carries, so that it can be made again."""

from __future__ import annotations

import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import specfit


def manifest(**specs: Any) -> dict[str, Any]:
    """Return the version of the program and the specs that made a row."""
    return {"specfit": specfit.__version__, "commit": git_commit(), **specs}


@cache
def git_commit() -> str | None:
    """Return the commit of the checkout in use; None for an installed package."""
    root = Path(specfit.__file__).parents[1]
    if not (root / ".git").exists():
        return None
    try:
        found = subprocess.run(
            ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=12"],
            capture_output=True,
            text=True,
            check=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return None
    return found.stdout.strip()
