"""What the tests about the repository read: its files and the syntax trees of the package."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "specfit"


@cache
def modules() -> dict[str, ast.Module]:
    """Syntax tree of each module of the package by dotted name; nothing is imported."""
    return {_dotted(path): ast.parse(path.read_text("utf-8")) for path in _python_files()}


def imported(tree: ast.Module) -> Iterator[str]:
    """Yield the dotted name of everything that a module imports, anywhere in it."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"line {node.lineno}: imports are absolute"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def tracked_files() -> list[Path]:
    """Files that belong to the repository; all but the ignored ones where git is not at hand."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file()]


def _python_files() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def _dotted(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
