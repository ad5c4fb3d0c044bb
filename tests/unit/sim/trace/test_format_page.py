"""The format's page and its schema name the same columns."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest

from specfit.sim.trace import TraceMetadata
from specfit.sim.trace.schema import CYCLES, FORMAT_VERSION, POSITIONS, PROMPTS, STATES
from tests.sources import ROOT

PAGE = (ROOT / "docs" / "reference" / "trace-format.md").read_text("utf-8")
BOTH = [name for name in CYCLES.names if name in POSITIONS.names]


def listed(heading: str) -> list[str]:
    """Return the names in the first column of the table under a heading."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("metadata.json", ["format_version", *(f.name for f in fields(TraceMetadata))]),
        ("prompts", PROMPTS.names),
        ("Columns of both row tables", [*BOTH, STATES.name]),
        ("cycles", [name for name in CYCLES.names if name not in BOTH]),
        ("positions", [name for name in POSITIONS.names if name not in BOTH]),
    ],
)
def test_the_page_lists_every_name_once(heading: str, names: list[str]) -> None:
    assert sorted(listed(heading)) == sorted(names)


def test_the_page_is_of_this_version() -> None:
    assert f"\nVersion {FORMAT_VERSION}. " in PAGE
