"""The how-to page on sweeps and reports: its commands run as they stand, in order."""

from __future__ import annotations

import importlib.util
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from specfit.sim.results import read_results
from tests.sources import ROOT

PAGE = (ROOT / "docs" / "how-to" / "report-and-sweep.md").read_text("utf-8")
FENCES = re.findall(r"^```(sh|py)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = [line for kind, text in FENCES if kind == "sh" for line in text.splitlines()]
ONE_LINERS = [text for kind, text in FENCES if kind == "py"]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory, programs: Path) -> Path:
    folder = tmp_path_factory.mktemp("page")
    for command in COMMANDS:
        words = shlex.split(command)
        assert words[0] == "specfit"
        ran = subprocess.run(
            [programs / "specfit", *words[1:]], cwd=folder, capture_output=True, text=True
        )
        assert ran.returncode == 0, f"{command}\n{ran.stderr}"
    return folder


def test_the_page_leaves_what_it_says(folder: Path) -> None:
    results = read_results(folder / "sweep")
    assert len(results.rows) == 3 * 2 * 2 * 2
    assert {row["origin"] for row in results.rows} == {"synthetic"}
    report = folder / "sweep" / "report"
    assert (report / "report.html").is_file() and (report / "report.md").is_file()
    assert list((report / "pictures").glob("*.png"))
    assert "synthetic" in (report / "report.md").read_text("utf-8")


def test_the_timeline_is_one_that_perfetto_reads(folder: Path) -> None:
    """Complete events with a start and a length, tracks with names: the JSON trace format."""
    document = json.loads((folder / "timeline.json").read_text("utf-8"))
    assert "simulated" in document["otherData"]["title"]
    spans = [event for event in document["traceEvents"] if event["ph"] == "X"]
    names = [event for event in document["traceEvents"] if event["ph"] == "M"]
    assert {"draft", "stall", "compute"} <= {event["name"] for event in spans}
    assert {"device", "link"} <= {event["args"]["name"] for event in names}
    assert all(event["ts"] >= 0 and event["dur"] > 0 for event in spans)


@pytest.mark.parametrize("one_liner", ONE_LINERS, ids=lambda text: text.split()[1])
def test_a_one_liner_runs(folder: Path, one_liner: str) -> None:
    module = one_liner.split()[1]
    if importlib.util.find_spec(module) is None:
        pytest.skip(f"{module} is not installed; it is no dependency of specfit")
    ran = subprocess.run(
        [sys.executable, "-c", one_liner], cwd=folder, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip()
