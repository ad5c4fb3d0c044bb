"""The documentation does what it says: links lead somewhere, snippets run, commands exist."""

from __future__ import annotations

import ast
import dataclasses
import doctest
import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from specfit.core.backend import Request
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeLoop
from specfit.core.policy import policies
from specfit.sim.metrics import Calibration, Metrics
from specfit.testing.examples import DrafterAcceptance, UniformPredictor, example_profile
from specfit.testing.toy import toy_backend
from tests.sources import ROOT, modules

PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("benchmarks/*.md")])
FENCE = re.compile(r"^```(\w*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SITE_ONLY = (
    "reference/api/",
    "reference/policies.md",
    "reference/cli.md",
    "reference/benchmarks.md",
)
"""Pages that are generated when the site is built."""


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[str]:
    return [text for lang, text in FENCE.findall(page.read_text("utf-8")) if lang in languages]


def links(page: Path) -> list[str]:
    prose = FENCE.sub("", page.read_text("utf-8"))
    targets = re.findall(r"\]\(([^)\s]+)\)", prose)
    return [t for t in targets if not t.startswith(("http://", "https://", "mailto:"))]


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h).strip().lower().replace(" ", "-") for h in headings}


def test_every_page_is_once_in_the_menu_of_the_site() -> None:
    menu = re.findall(r"- (?:Home: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    written = [page for page in menu if not page.startswith(SITE_ONLY)]
    docs = ROOT / "docs"
    assert sorted(written) == sorted(str(p.relative_to(docs)) for p in docs.rglob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    for link in links(page):
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if any(part in str(target) for part in SITE_ONLY):
            continue
        assert target.exists(), f"{link} leads nowhere"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{link} names no heading of {target.name}"


PAGES_WITH_PYTHON = [page for page in PAGES if blocks(page, "python")]


@pytest.mark.parametrize("page", PAGES_WITH_PYTHON, ids=name_of)
def test_python_snippets_run(page: Path, tmp_path: Path) -> None:
    program = "\n".join(blocks(page, "python"))
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], cwd=ROOT, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr


def commands(page: Path) -> list[str]:
    text = "\n".join(blocks(page, "", "sh", "bash", "console")).replace("\\\n", " ")
    lines = [line.removeprefix("$ ").partition("  #")[0].strip() for line in text.splitlines()]
    return [line.removeprefix(".venv/bin/") for line in lines]


SPECFIT = [(p, c) for p in PAGES for c in commands(p) if c.startswith("specfit ")]


@pytest.mark.parametrize(("page", "command"), SPECFIT, ids=lambda x: getattr(x, "name", x))
def test_commands_have_these_verbs_and_options(page: Path, command: str) -> None:
    from specfit.cli.main import app

    arguments = shlex.split(re.split(r"\s[|>]\s", command)[0])[1:]
    parse(typer.main.get_command(app), arguments)


def parse(command: Any, arguments: list[str]) -> None:
    """Parse a command line without running it; an unknown verb or option raises."""
    while hasattr(command, "commands"):
        if arguments and arguments[0] in {name for p in command.params for name in p.opts}:
            return  # an option of the program itself
        assert arguments and arguments[0] in command.commands, f"no verb {arguments[:1]}"
        command, arguments = command.commands[arguments[0]], arguments[1:]
    if "--help" not in arguments:
        command.make_context(command.name, arguments)


def test_a_wrong_option_would_be_noticed() -> None:
    from specfit.cli.main import app

    with pytest.raises(Exception, match="polcy"):
        parse(typer.main.get_command(app), ["replay", "trace", "--polcy", "eagle3"])
    with pytest.raises(AssertionError, match="no verb"):
        parse(typer.main.get_command(app), ["repaly", "trace"])


MAKE = [(p, c) for p in PAGES for c in commands(p) if c.startswith("make ")]


@pytest.mark.parametrize(("page", "command"), MAKE, ids=lambda x: getattr(x, "name", x))
def test_make_targets_exist(page: Path, command: str) -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)
    named = [word for word in command.split()[1:] if "=" not in word]
    assert set(named) <= set(targets)


def test_the_readme_policy_decodes(tmp_path: Path) -> None:
    (tmp_path / "my.py").write_text(blocks(ROOT / "README.md", "python")[0], "utf-8")
    policy = policies.make(f"{tmp_path / 'my.py'}:Threshold:min_path_prob=0.2")
    with toy_backend() as backend:
        inputs = ProfileCost(example_profile()), UniformPredictor(backend.geometry)
        loop = DecodeLoop(backend, policy, *inputs, DrafterAcceptance())
        result = loop.run(Request(prompt=(1, 2, 3), max_new_tokens=20))
    assert len(result.tokens) == 20
    assert max(cycle.num_verified for cycle in result.cycles) > 1


def test_the_readme_names_both_commands_on_its_first_screen() -> None:
    first_screen = (ROOT / "README.md").read_text("utf-8").splitlines()[:40]
    assert any(line.startswith("make demo") for line in first_screen)
    assert any(line.startswith("make test") for line in first_screen)


def test_every_metric_has_its_line() -> None:
    page = set(re.findall(r"`(\w+)`", (ROOT / "docs/reference/metrics.md").read_text("utf-8")))
    for metrics in (Metrics, Calibration):
        fields = {field.name for field in dataclasses.fields(metrics)}
        ratios = {name for name, x in vars(metrics).items() if isinstance(x, property)}
        assert fields | ratios <= page


def has_examples(tree: ast.Module) -> bool:
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    nodes = [node for node in ast.walk(tree) if isinstance(node, documented)]
    return any(">>>" in (ast.get_docstring(node) or "") for node in nodes)


WITH_EXAMPLES = [name for name, tree in modules().items() if has_examples(tree)]


@pytest.mark.parametrize("module", WITH_EXAMPLES)
def test_docstring_examples_run(module: str) -> None:
    result = doctest.testmod(importlib.import_module(module))
    assert result.failed == 0
    assert result.attempted > 0
