"""Every package that specfit imports is declared, and every declared one has its reason."""

from __future__ import annotations

import re
import sys
import tomllib

from tests.sources import ROOT, imported, modules


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"].values()
    wanted = [*project["dependencies"], *(line for extra in extras for line in extra)]
    return {re.split(r"[<>=!~\[; ]", line)[0] for line in wanted}


def pinned() -> set[str]:
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    return {line.split("==")[0].lower().replace("_", "-") for line in lines if "==" in line}


def test_every_imported_package_is_declared() -> None:
    names = {name.split(".")[0] for tree in modules().values() for name in imported(tree)}
    foreign = names - set(sys.stdlib_module_names) - {"specfit"}
    assert foreign - declared() == set()


def test_every_dependency_has_its_line() -> None:
    page = (ROOT / "docs" / "dependencies.md").read_text("utf-8")
    described = set(re.findall(r"^\| `([\w-]+)`", page, re.MULTILINE))
    assert described == declared()


def test_every_dependency_is_pinned() -> None:
    wanted = {name.lower().replace("_", "-") for name in declared()}
    assert wanted - pinned() == set()
