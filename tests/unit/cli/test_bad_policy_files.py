"""Policy files that are no good: each is told what is wrong with it, in one line."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from specfit.cli.main import app

HEAD = """
from dataclasses import dataclass, field, replace
import numpy as np
from specfit.core.policy import Cycle, Policy
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan, DraftTree

ASKED = []

@dataclass
class Base(Policy):
    def plan(self, cycle):
        return DraftPlan(3, 2, 8)

    def select(self, cycle):
        return Selection(cycle.tree, np.arange(len(cycle.tree)) < 8)
"""
REFUSED = {
    "does not import": ("import nonsense_of_this_test", "cannot be imported: ModuleNotFoundError"),
    "has a slip": ("class Mine(:", "cannot be imported: SyntaxError"),
    "raises": ("raise RuntimeError('no')", "cannot be imported: RuntimeError: no"),
    "defines nothing": ("", "defines no class Mine."),
    "defines something else": ("class Mine:\n    pass", "must be a dataclass that derives from"),
    "is no dataclass": (
        f"{HEAD}\nclass Mine(Policy):\n    def select(self, cycle):\n        return None",
        "must be a dataclass that derives from Policy",
    ),
    "selects nothing": (
        f"{HEAD}\n@dataclass\nclass Mine(Policy):\n    pass",
        "has no select",
    ),
}
BREAKS = {
    "returns a foreign selection": (
        "P2",
        "def select(self, cycle):\n"
        "        other = replace(cycle.tree)\n"
        "        return Selection(other, np.arange(len(other)) < 8)",
        "another tree than cycle.tree",
    ),
    "changes its input": (
        "P4",
        "def select(self, cycle):\n"
        "        cycle.tree.tokens.setflags(write=True)\n"
        "        cycle.tree.tokens[-1] += 1\n"
        "        return super().select(cycle)",
        "changed what the cycle holds",
    ),
    "keeps state over reset": (
        "P7",
        "seen: int = field(default=0, init=False)\n\n"
        "    def observe(self, outcome):\n"
        "        self.seen += len(outcome.accepted)\n\n"
        "    def plan(self, cycle):\n"
        "        return DraftPlan(2 if self.seen > 4 else 3, 2, 8)",
        "but also",
    ),
    "is not deterministic": (
        "P6 or P7",  # that two instances differ shows as either
        "def plan(self, cycle):\n"
        "        ASKED.append(1)\n"
        "        return DraftPlan(2 + len(ASKED) % 5 % 2, 2, 8)",
        "but also",
    ),
    "raises on the way": (
        "P1",
        "def select(self, cycle):\n        raise KeyError('gain')",
        "select raised KeyError",
    ),
}


def check(tmp_path: Path, text: str) -> Result:
    file = tmp_path / "mine.py"
    file.write_text(text, "utf-8")
    return CliRunner().invoke(app, ["check", "policy", f"{file}:Mine"])


@pytest.mark.parametrize("what", REFUSED)
def test_a_file_without_a_policy_is_misuse(tmp_path: Path, what: str) -> None:
    text, message = REFUSED[what]
    result = check(tmp_path, text)
    assert result.exit_code == 2, result.stdout
    assert message in result.stderr
    assert result.stderr.count("\n") == 1, "one line"


@pytest.mark.parametrize("what", BREAKS)
def test_a_policy_that_breaks_a_rule_is_told_which(tmp_path: Path, what: str) -> None:
    rule, body, message = BREAKS[what]
    text = f"{HEAD}\n@dataclass\nclass Mine(Base):\n    {body}\n"
    result = check(tmp_path, text)
    said = " ".join(result.stdout.split())
    assert any(f"breaks {one}:" in said for one in rule.split(" or ")), said
    assert message in said
    assert result.exit_code == 1


def test_a_file_alone_is_told_to_name_its_class(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["check", "policy", str(tmp_path / "mine.py")])
    assert result.exit_code == 2
    assert "is a file; a policy is a class in it. Write" in result.stderr


def test_a_file_that_is_not_there_is_named() -> None:
    result = CliRunner().invoke(app, ["check", "policy", "nowhere.py:Mine"])
    assert result.exit_code == 2
    assert "no file nowhere.py to take the policy from" in result.stderr
