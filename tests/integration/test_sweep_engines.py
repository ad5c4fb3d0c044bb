"""`specfit sweep` as processes: killed and resumed, on a Dask cluster, on Ray."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from specfit.testing.examples import example_profile
from tests.unit.sim.traces import write_positions

POLICIES = [
    "autoregressive",
    *(f"eagle3:depth=3,top_k=3,max_nodes={n}" for n in (4, 8)),
    "mine.py:Coin",
]
CACHES = ["lru", "fifo", "sieve", "none"]
SIZES = ["25%", "50%", "75%"]
NUM_CELLS = 2 * 4 * 10  # seeds, policies, three rules with three sizes and none
POLICY = '''
from dataclasses import dataclass
from specfit.core.policy import Policy
from specfit.core.selection import Selection

@dataclass
class Coin(Policy):
    """Verify the root alone, or all that is drafted."""

    def plan(self, cycle):
        from specfit.core.tree import DraftPlan
        return DraftPlan(2, 3, 20)

    def select(self, cycle):
        keep = cycle.rng.random() < 0.5
        return Selection(cycle.tree, (cycle.tree.depths == 0) | keep)
'''

ENVIRONMENT = {**os.environ, "GIT_DIR": os.devnull, "OMP_NUM_THREADS": "1"}
"""The commit is part of a cell, and a checkout may move on between two runs of a test."""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sweep")
    write_positions(folder / "trace")
    example_profile().write(folder / "profile.toml")
    (folder / "mine.py").write_text(POLICY, "utf-8")
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text('{"model_type": "none"}')
    return folder


def sweep_command(out: str, *options: str) -> list[str]:
    command = [sys.executable, "-m", "specfit.cli", "sweep", "trace", "--out", out]
    command += ["--profile", "profile.toml", "--model", "model", "--seed", "0", "--seed", "1"]
    command += [word for policy in POLICIES for word in ("--policy", policy)]
    command += [word for cache in CACHES for word in ("--cache", cache)]
    command += [word for size in SIZES for word in ("--size", size)]
    return [*command, *options]


def sweep(folder: Path, out: str, *options: str) -> subprocess.CompletedProcess[str]:
    made = subprocess.run(
        sweep_command(out, *options),
        cwd=folder,
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert made.returncode == 0, made.stderr
    return made


def rows_of(folder: Path, out: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pq.read_table(folder / out / "results.parquet").to_pylist()
    return rows


@pytest.fixture(scope="module")
def expected(folder: Path) -> list[dict[str, Any]]:
    sweep(folder, "whole", "--jobs", "1")
    return rows_of(folder, "whole")


def test_seeds_make_other_rows_of_policies_that_draw(expected: list[dict[str, Any]]) -> None:
    assert len(expected) == NUM_CELLS
    by_seed = [
        [
            row["num_verified"]
            for row in expected
            if "Coin" in row["policy"] and row["policy_key"] == key
        ]
        for key in (0, 1)
    ]
    assert by_seed[0] != by_seed[1]


def is_gone(group: int) -> bool:
    """Wait for the end of every process of a group; end them if they do not."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.1)
    os.killpg(group, signal.SIGKILL)
    return False


def test_a_killed_sweep_is_resumed(folder: Path, expected: list[dict[str, Any]]) -> None:
    log = folder / "killed.log"
    with log.open("w") as stderr:
        process = subprocess.Popen(
            sweep_command("killed", "--jobs", "2"),
            cwd=folder,
            env=ENVIRONMENT,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            start_new_session=True,
        )
        while len(finished(folder / "killed")) < 3:
            assert process.poll() is None, log.read_text()
            time.sleep(0.002)
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    assert is_gone(process.pid), "the workers outlive the program that started them"
    there = finished(folder / "killed")
    assert len(there) < NUM_CELLS
    assert not (folder / "killed" / "results.parquet").exists()
    before = {path: path.stat().st_mtime_ns for path in there}
    again = sweep(folder, "killed", "--jobs", "2")
    assert f"{len(there)} of {NUM_CELLS} cells are there already" in again.stderr
    assert {path: path.stat().st_mtime_ns for path in there} == before
    assert rows_of(folder, "killed") == expected


def finished(out: Path) -> list[Path]:
    """Return the files of finished cells, whole ones as they are renamed into place."""
    paths = sorted((out / "cells").glob("[!.]*.json"))
    for path in paths:
        json.loads(path.read_text("utf-8"))
    return paths


def test_a_row_names_the_command_that_makes_it_again(
    folder: Path, expected: list[dict[str, Any]]
) -> None:
    for row in (expected[0], expected[-1]):
        words = row["repeat"].split()
        assert words[:3] == ["specfit", "sweep", "trace"]
        made = subprocess.run(
            [sys.executable, "-m", "specfit.cli", *words[1:], "--json"],
            cwd=folder,
            env=ENVIRONMENT,
            capture_output=True,
            text=True,
        )
        assert [json.loads(line) for line in made.stdout.splitlines()] == [row], made.stderr


@pytest.fixture
def dask_cluster(tmp_path: Path) -> Iterator[str]:
    """Two workers in a folder of their own, as on a cluster."""
    file = tmp_path / "scheduler.json"
    parts = [
        ("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"),
        ("worker", "--no-dashboard", "--nthreads", "1"),
        ("worker", "--no-dashboard", "--nthreads", "1"),
    ]
    running = [
        subprocess.Popen(
            [sys.executable, "-m", "dask", *part, "--scheduler-file", str(file)],
            cwd=tmp_path,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        for part in parts
    ]
    try:
        deadline = time.monotonic() + 60
        while not file.exists():
            assert time.monotonic() < deadline, "the Dask scheduler has not started in 60 s"
            time.sleep(0.1)
        yield json.loads(file.read_text("utf-8"))["address"].removeprefix("tcp://")
    finally:
        for process in reversed(running):
            process.terminate()
            process.wait(timeout=30)


def test_a_dask_cluster_makes_the_same_rows(
    folder: Path, expected: list[dict[str, Any]], dask_cluster: str
) -> None:
    sweep(folder, "dask", "--engine", f"dask://{dask_cluster}")
    assert rows_of(folder, "dask") == expected


def test_a_scheduler_that_does_not_answer_is_one_line(folder: Path) -> None:
    command = sweep_command("nowhere", "--engine", "dask://127.0.0.1:1")
    made = subprocess.run(
        command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=300
    )
    assert made.returncode == 2
    assert "no Dask scheduler answers at 127.0.0.1:1" in made.stderr
    assert "Traceback" not in made.stderr


@pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="ray is not installed")
def test_ray_makes_the_same_rows(folder: Path, expected: list[dict[str, Any]]) -> None:
    sweep(folder, "ray", "--engine", "ray", "--jobs", "2")
    assert rows_of(folder, "ray") == expected
