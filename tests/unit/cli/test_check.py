"""`specfit check` of plug-ins: status 0 with the rules kept, 1 with one broken, 2 on misuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from specfit.cli.main import app

MINE = '''
from dataclasses import dataclass

import numpy as np

from specfit.core.cache import ExpertCache
from specfit.core.cost import ProfileCost
from specfit.core.policy import Policy
from specfit.core.selection import Selection

@dataclass
class Threshold(Policy):
    min_path_prob: float = 0.05

    def select(self, cycle):
        return Selection(cycle.tree, cycle.tree.path_probs >= self.min_path_prob)

@dataclass
class Forgets(Policy):
    """Selects without the root."""

    def select(self, cycle):
        return Selection(cycle.tree, cycle.tree.path_probs < 1)

@dataclass(frozen=True)
class Dear(ProfileCost):
    pass

@dataclass(eq=False)
class Highest(ExpertCache):
    def choose_victims(self, layer, candidates, count):
        return candidates[len(candidates) - count:]

@dataclass(eq=False)
class Lazy(ExpertCache):
    def choose_victims(self, layer, candidates, count):
        return candidates[:0]
'''


@pytest.fixture
def mine(tmp_path: Path) -> str:
    (tmp_path / "mine.py").write_text(MINE)
    return str(tmp_path / "mine.py")


def check(*args: str) -> Result:
    return CliRunner().invoke(app, ["check", *args])


def test_the_policy_of_the_tutorial_keeps_every_rule(mine: str) -> None:
    result = check("policy", f"{mine}:Threshold:min_path_prob=0.1")
    assert "keeps P1, P2, P3, P4, P5, P6, P7, P8, P9, P10, P11, P12, P13." in _flat(result)
    assert result.exit_code == 0


def test_a_policy_that_breaks_a_rule_is_told_which(mine: str) -> None:
    result = check("policy", f"{mine}:Forgets")
    assert "breaks P1: select raised InvalidSelectionError" in _flat(result)
    assert result.exit_code == 1


def test_prefetchers() -> None:
    kept = check("prefetcher", "predicted:min_prob=0.3")
    assert "keeps F1, F2, F3, F4, F5." in _flat(kept)
    peeks = check("prefetcher", "oracle")
    assert "breaks F4: it knows the routing" in _flat(peeks)
    assert peeks.exit_code == 1
    assert check("prefetcher", "previuos").exit_code == 2


def test_cost_models_and_caches(mine: str) -> None:
    assert check("cost", f"{mine}:Dear").exit_code == 0
    assert check("cost", "profile").exit_code == 0
    assert check("cache", f"{mine}:Highest").exit_code == 0
    lazy = check("cache", f"{mine}:Lazy")
    assert "breaks E3: choose_victims of Lazy" in _flat(lazy)
    assert lazy.exit_code == 1


def test_an_unknown_class_is_misuse(mine: str) -> None:
    result = check("policy", f"{mine}:Treshold")
    assert result.exit_code == 2
    assert "Did you mean 'Threshold'" in result.stderr


def _flat(result: Result) -> str:
    return " ".join(result.stdout.split())


def test_the_verdict_is_told_as_json_too(tmp_path):
    kept = CliRunner().invoke(app, ["check", "policy", "eagle3", "--json"])
    row = json.loads(kept.stdout)
    assert (row["spec"], row["breaks"]) == ("eagle3", None)
    assert "P1" in row["keeps"]
    (tmp_path / "bad.py").write_text(
        "from dataclasses import dataclass\n"
        "from specfit.core.policy import Policy\n"
        "@dataclass\n"
        "class Bad(Policy):\n"
        "    def select(self, cycle):\n"
        "        return None\n"
    )
    broken = CliRunner().invoke(app, ["check", "policy", f"{tmp_path}/bad.py:Bad", "--json"])
    assert broken.exit_code == 1
    assert json.loads(broken.stdout)["breaks"].startswith("P1")
