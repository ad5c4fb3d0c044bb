"""docs/papers.md has a true row for every published policy."""

from __future__ import annotations

import re
import sys

import pytest

import specfit.policies  # noqa: F401 - registers the shipped ones
from specfit.core.policy import policies
from tests.contract.shipped import shipped
from tests.sources import ROOT

PAGE = (ROOT / "docs" / "papers.md").read_text("utf-8")
OWN = {"autoregressive", "specfit", "reference-experts", "reference-truth"}
ROWS = {
    cells[0].strip("` "): cells
    for line in PAGE.splitlines()
    if line.startswith("| `")
    for cells in [line.strip("|").split("|")]
}
PINNED = re.findall(r"`(test_\w+\.py)::(test_\w+)`", PAGE)


def test_every_shipped_policy_has_its_row() -> None:
    names = {name for name in policies.names() if policies.get(name) in shipped(policies)}
    assert set(ROWS) == names - OWN


@pytest.mark.parametrize("name", ROWS)
def test_a_row_names_the_paper_and_the_file_of_its_policy(name: str) -> None:
    _, paper, _, file, _, _ = ROWS[name]
    module = sys.modules[policies.get(name).__module__]
    said = set(re.findall(r"\d{4}\.\d{5}", (module.__doc__ or "").partition("Source:")[2]))
    assert said == set(re.findall(r"\d{4}\.\d{5}", paper))
    assert (module.__file__ or "").endswith(f"policies/{file.strip('` ')}")


@pytest.mark.parametrize(("file", "test"), PINNED)
def test_the_test_that_pins_it_exists(file: str, test: str) -> None:
    source = (ROOT / "tests" / "unit" / "policies" / file).read_text("utf-8")
    assert f"def {test}(" in source


def test_every_row_and_the_references_are_pinned() -> None:
    assert len(PINNED) == len(ROWS) + 1
