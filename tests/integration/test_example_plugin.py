"""The example package, found through its entry points as an installer would write them down."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.sources import ROOT

PACKAGE = ROOT / "examples" / "plugin"
PROJECT = tomllib.loads((PACKAGE / "pyproject.toml").read_text("utf-8"))["project"]
CHECKS = (
    ("policy", "within-budget:copies=20"),
    ("predictor", "half-remembered:share=0.5"),
    ("acceptance", "tempered:temperature=0.7"),
    ("cache", "highest-id"),
)
PROGRAM = """
import sys
from typer.testing import CliRunner
from specfit.cli.main import app
for kind, spec in {checks!r}:
    result = CliRunner().invoke(app, ["check", kind, spec])
    print(result.stdout, result.stderr)
    assert result.exit_code == 0
for kind in ("policies", "predictors", "acceptance", "caches"):
    print(CliRunner().invoke(app, ["show", kind]).stdout)
"""


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """Return a folder for the module path in which the package counts as installed."""
    (tmp_path / "specfit_example").symlink_to(PACKAGE / "specfit_example")
    info = tmp_path / f"specfit_example-{PROJECT['version']}.dist-info"
    info.mkdir()
    lines = [f"Metadata-Version: 2.1\nName: {PROJECT['name']}\nVersion: {PROJECT['version']}\n"]
    (info / "METADATA").write_text("".join(lines))
    points = []
    for group, names in PROJECT["entry-points"].items():
        points += [f"[{group}]", *(f"{name} = {place}" for name, place in names.items())]
    (info / "entry_points.txt").write_text("\n".join(points) + "\n")
    return tmp_path


def test_every_plug_in_is_found_shown_and_keeps_its_rules(installed: Path) -> None:
    paths = os.pathsep.join([str(installed), str(ROOT), os.environ.get("PYTHONPATH", "")])
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(checks=CHECKS)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for _, spec in CHECKS:
        name = spec.partition(":")[0]
        assert ran.stdout.count(name) >= 2, f"{name} is checked, and shown"


def test_without_the_package_the_names_are_unknown() -> None:
    from specfit.core.errors import UnknownPluginError
    from specfit.core.policy import policies

    with pytest.raises(UnknownPluginError, match="no policy 'within-budget'"):
        policies.make("within-budget")
