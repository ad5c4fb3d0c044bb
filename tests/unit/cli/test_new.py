"""`specfit new policy`: what it writes is sound, short, and never over somebody's file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from specfit.cli.main import app
from specfit.testing.policy_contract import PolicyContract


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def test_the_policy_is_short_and_named_after_its_name(tmp_path: Path) -> None:
    made = run("new", "policy", "my-own-rule", "--out", tmp_path / "mine")
    assert made.exit_code == 0, made.stderr
    text = (tmp_path / "mine" / "my_own_rule.py").read_text("utf-8")
    assert "class MyOwnRule(Policy):" in text
    assert len(text.splitlines()) <= 18
    assert f"{tmp_path / 'mine' / 'my_own_rule.py'}:MyOwnRule" in made.stderr.replace("\n", "")


@pytest.mark.slow
def test_its_test_passes_and_runs_every_rule(tmp_path: Path) -> None:
    run("new", "policy", "fresh", "--out", tmp_path)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_fresh.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout
    assert f"{len(PolicyContract.rules())} passed" in ran.stdout


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text("mine")
    again = run("new", "policy", "mine", "--out", tmp_path)
    assert again.exit_code == 2
    assert "is not overwritten" in again.stderr
    assert [p.name for p in tmp_path.iterdir()] == ["test_mine.py"]


@pytest.mark.parametrize("name", ["My", "my_rule", "-x", "1st", "a--b", "class", "a/b", ""])
def test_a_name_is_lower_case_with_hyphens(tmp_path: Path, name: str) -> None:
    refused = CliRunner().invoke(app, ["new", "policy", "--out", str(tmp_path), "--", name])
    assert refused.exit_code == 2
    assert "lower case with hyphens" in refused.stderr
    assert not list(tmp_path.iterdir())
