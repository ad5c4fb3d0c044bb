"""Traces that many tests read and none writes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.sim.traces import write_positions, write_run


@pytest.fixture(scope="session")
def run_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces") / "run"
    write_run(folder)
    return folder


@pytest.fixture(scope="session")
def positions_trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces") / "positions"
    write_positions(folder)
    return folder
