"""A small sweep on a trace of the toy backend, run once a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from specfit.cli.replay_options import ReplayOptions
from specfit.cli.sweep import Evaluate
from specfit.core.tree import DraftPlan
from specfit.sim.results import Results, read_results
from specfit.sim.sweep import product, run_sweep, with_sizes
from specfit.sim.trace import TraceReader
from specfit.testing.examples import example_profile
from tests.unit.sim.traces import write_positions

POLICIES = [
    "autoregressive",
    "eagle3:depth=4,top_k=3,max_nodes=12",
    "eagle3:depth=3,top_k=3,max_nodes=6",
    "specfit:depth=4,top_k=3",
]


@pytest.fixture(scope="session")
def sweep_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two traces, four policies, three caches, two links."""
    folder = tmp_path_factory.mktemp("report")
    write_positions(folder / "wide")
    write_positions(folder / "narrow", [DraftPlan(4, 3, 20)])
    example_profile().write(folder / "profile.toml")
    (folder / "model").mkdir()
    (folder / "model" / "config.json").write_text('{"model_type": "none"}')
    traces = {name: TraceReader(folder / name).fingerprint for name in ("wide", "narrow")}
    caches = with_sizes(["lru", "none"], ["25%", "50%"])
    cells = product(traces, POLICIES, caches, (None, 4e9))
    options = ReplayOptions(profile="profile.toml", model="model", max_prompts=1)
    evaluate = Evaluate("profile", options, root=str(folder))
    context = evaluate.context(list(traces))
    run_sweep(cells, evaluate, folder / "sweep", context=context)
    return folder / "sweep"


@pytest.fixture(scope="session")
def results(sweep_folder: Path) -> Results:
    return read_results(sweep_folder)
