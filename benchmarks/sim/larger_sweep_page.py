"""The larger sweep's findings for `docs/how-to/report-and-sweep.md`."""

from __future__ import annotations

from typing import Any


def block(found: dict[str, Any]) -> str:
    """Return the report's own sentences, and where they come from."""
    quoted = "\n>\n".join(f"> {sentence}" for sentence in found["findings"])
    commit = found["manifest"]["commit"]
    return f"{found['cells']} cells, commit {commit}. {found['source']}\n\n{quoted}"
