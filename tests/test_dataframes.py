"""The one-liners of the how-to page on pandas, Polars and DuckDB, where these are installed."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.sources import ROOT
from tests.unit.sim.traces import write_run

PAGE = ROOT / "docs" / "how-to" / "read-with-dataframes.md"
SNIPPETS = re.findall(r"^```py\n(.*?)^```$", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL)


def module_of(snippet: str) -> str:
    found = re.search(r"import (pandas|polars|duckdb)", snippet)
    assert found is not None
    return found[1]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dataframes")
    write_run(folder / "run")
    rows = [
        {"policy": policy, "cache": cache, "hit_rate": 0.5, "simulated_tokens_per_s": 10.0 + i}
        for i, policy in enumerate(("autoregressive", "specfit"))
        for cache in ("lru:25%", "lru:50%")
    ]
    (folder / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n", "utf-8")
    return folder


def test_each_library_reads_results_and_traces() -> None:
    used = [module_of(snippet) for snippet in SNIPPETS]
    assert sorted(used) == sorted(["pandas", "polars", "duckdb"] * 2)


@pytest.mark.slow
@pytest.mark.parametrize("snippet", SNIPPETS, ids=[module_of(s) for s in SNIPPETS])
def test_a_one_liner_runs(folder: Path, snippet: str) -> None:
    if importlib.util.find_spec(module_of(snippet)) is None:
        pytest.skip(f"{module_of(snippet)} is not installed; it is no dependency of specfit")
    ran = subprocess.run(
        [sys.executable, "-c", snippet], cwd=folder, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip()
