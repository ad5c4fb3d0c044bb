"""`specfit fit`, and replays with what it wrote: on traces of the toy backend, no model needed."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from specfit.cli.main import app
from specfit.core.backend import Request
from specfit.core.tree import DraftPlan
from specfit.policies.fitting.calibration import METHODS
from specfit.sim.metrics import distinct_4
from specfit.sim.observe import observed_texts
from specfit.sim.record_positions import record_positions
from specfit.sim.trace import TraceReader, TraceWriter, metadata_of
from specfit.testing.examples import example_geometry, example_profile
from specfit.testing.toy import toy_backend

PLANS = (DraftPlan(4, 3, 64),)
REQUESTS = tuple(Request(tuple(range(1, 10 + i)), 16) for i in range(5))


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cli")
    backend = toy_backend()
    with TraceWriter.create(folder / "trace", metadata_of(backend, "positions", PLANS)) as writer:
        record_positions(backend, REQUESTS, PLANS, writer)
    example_profile().write(folder / "profile.toml")
    for kind in ("previous-token", "ensemble"):
        made = run("fit", "predictor", folder / "trace", "--kind", kind, "-o", folder / kind)
        assert made.exit_code == 0, made.stderr
        assert "recall at k" in made.stdout
    for method in METHODS:
        made = run("fit", "acceptance", folder / "trace", "--method", method, "-o", folder / method)
        assert made.exit_code == 0, made.stderr
        assert "depth 1" in made.stdout
    return folder


def replay(folder: Path, *arguments: object) -> Result:
    given = ("--profile", folder / "profile.toml", "-p", "eagle3:depth=3,top_k=3,max_nodes=8")
    return run("replay", folder / "trace", *given, "--acceptance", "identity", *arguments)


def test_reliability_is_drawn(folder: Path) -> None:
    assert (folder / "isotonic" / "reliability.png").read_bytes()[1:4] == b"PNG"


@pytest.mark.parametrize("kind", ["previous-token", "ensemble"])
def test_a_replay_takes_a_fitted_predictor_and_says_so(folder: Path, kind: str) -> None:
    spec = f"{kind}:folder={folder / kind}"
    made = replay(folder, "--predictor", spec, "--json")
    assert made.exit_code == 0, made.stderr
    row = json.loads(made.stdout)
    assert row["predictor"]["name"] == kind
    assert row["predictor"]["params"]["folder"] == str(folder / kind)
    assert row["acceptance"] == {"name": "identity", "params": {}}
    assert row["policy_spec"]["params"]["depth"] == 3


@pytest.mark.parametrize("spec", ["oracle", "noisy-oracle:recall=0.7", "uniform"])
def test_a_replay_takes_predictors_that_need_no_fit(folder: Path, spec: str) -> None:
    assert replay(folder, "--predictor", spec).exit_code == 0


def test_a_replay_takes_a_fitted_acceptance_model(folder: Path) -> None:
    for method in METHODS:
        spec = f"{method}:folder={folder / method}"
        made = replay(folder, "--predictor", "uniform", "--acceptance", spec)
        assert made.exit_code == 0, made.stderr


def test_settings_are_part_of_the_policys_name(folder: Path) -> None:
    made = replay(folder, "--predictor", "uniform", "--set", "max_nodes=5", "--json")
    row = json.loads(made.stdout)
    assert row["policy"] == "eagle3:depth=3,top_k=3,max_nodes=8,max_nodes=5"
    assert row["policy_spec"]["params"]["max_nodes"] == 5


def test_a_plot_shows_what_was_replayed(folder: Path, tmp_path: Path) -> None:
    made = replay(
        folder, "--predictor", "uniform", "-p", "autoregressive", "--plot", tmp_path / "speed.png"
    )
    assert made.exit_code == 0, made.stderr
    assert "1.00x" in made.stdout or "1.00" in made.stdout
    assert {p.suffix for p in tmp_path.iterdir()} == {".png", ".svg"}


def rewrite_fingerprint(file: Path) -> None:
    said = json.loads(file.read_text("utf-8"))
    said["constants"]["fitted_on"] = "0" * 64
    file.write_text(json.dumps(said))


def test_what_was_fitted_on_another_model_is_refused(folder: Path, tmp_path: Path) -> None:
    for kind in ("previous-token", "isotonic"):
        copied = tmp_path / kind
        copied.mkdir()
        for file in (folder / kind).glob(f"{kind}.*"):
            (copied / file.name).write_bytes(file.read_bytes())
        rewrite_fingerprint(copied / f"{kind}.json")
    predictor = replay(folder, "--predictor", f"previous-token:folder={tmp_path}/previous-token")
    acceptance = replay(
        folder, "--predictor", "uniform", "--acceptance", f"isotonic:folder={tmp_path}/isotonic"
    )
    for refused in (predictor, acceptance):
        assert refused.exit_code == 2
        assert "was fitted on another model or head (fingerprint 000000000000)" in refused.stderr


def test_a_fit_says_how_much_of_the_trace_loops_and_what_it_makes_of_it(tmp_path: Path) -> None:
    """With four words a long text repeats itself; the limit lies above the two worst."""
    backend = toy_backend(geometry=replace(example_geometry(), vocab_size=4))
    requests = [Request((0,) * length, 20 * length) for length in range(1, 6)]
    with TraceWriter.create(tmp_path / "trace", metadata_of(backend, "positions", PLANS)) as writer:
        record_positions(backend, requests, PLANS, writer)
    texts = list(observed_texts(TraceReader(tmp_path / "trace")))
    limit = sorted(distinct_4(text.tokens) for text in texts)[2]
    looping = [text for text in texts if distinct_4(text.tokens) < limit]
    nodes, in_all = (
        sum(len(draft.tree) - 1 for text in some for draft in text.drafts)
        for some in (looping, texts)
    )
    for method, name, use in (
        ("isotonic", "isotonic", "nothing"),
        ("depth-rank", "acceptance-curves", "only what a repetition is worth"),
    ):
        arguments = ("--method", method, "--least-distinct", limit, "-o", tmp_path / method)
        made = run("fit", "acceptance", tmp_path / "trace", *arguments)
        said = " ".join(made.stderr.split())
        assert f"{len(looping)} of 5 texts, with {nodes:,} of {in_all:,} drafted nodes" in said
        assert f"{use} is fitted on them" in said
        about = json.loads((tmp_path / method / f"{name}.json").read_text("utf-8"))
        assert about["provenance"]["num_looping"] == len(looping)


def test_a_fit_never_replaces_other_files(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    refused = run("fit", "acceptance", folder / "trace", "-o", tmp_path)
    assert refused.exit_code == 2
    assert "holds other files" in refused.stderr


def test_an_unknown_kind_is_named(folder: Path, tmp_path: Path) -> None:
    refused = run("fit", "predictor", folder / "trace", "--kind", "ensembel", "-o", tmp_path / "x")
    assert refused.exit_code == 2
    assert "Did you mean 'ensemble'" in refused.stderr


def test_fitted_plug_ins_are_checked_by_spec(folder: Path) -> None:
    good = run("check", "predictor", f"ensemble:folder={folder / 'ensemble'}")
    assert "keeps V1, V2, V3, V4, V5." in " ".join(good.stdout.split())
    good = run("check", "acceptance", f"isotonic:folder={folder / 'isotonic'}")
    assert "keeps A1, A2, A3, A4, A5, A6." in " ".join(good.stdout.split())
    peeks = run("check", "predictor", "oracle")
    assert peeks.exit_code == 1
    assert "oracle breaks V4: it knows the routing" in " ".join(peeks.stdout.split())
