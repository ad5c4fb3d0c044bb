"""Hidden states on the bundled model: recorded, fitted on, decoded with, and replayed equally."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the live backend needs torch")

from typer.testing import CliRunner, Result

from specfit import data
from specfit.backends import load
from specfit.backends.routers import read_routers
from specfit.cli.main import app
from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.errors import BackendError, CheckpointError
from specfit.core.predictor import predictors
from specfit.policies import SpecFit
from specfit.policies.inputs import load_inputs
from specfit.sim.replay import replay
from specfit.sim.trace import CycleRow, TraceReader, strip_decisions
from specfit.testing.examples import example_profile
from tests.unit.backends.models import make_target

TINY = data.model_folder("tiny")
KINDS = ("hidden-probe", "target-routers")
CACHE = "lru:25%"


def run(*args: object) -> Result:
    return CliRunner().invoke(app, [str(arg) for arg in args])


def done(*args: object) -> Result:
    made = run(*args)
    assert made.exit_code == 0, made.stderr
    return made


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> tuple[object, ...]:
    folder = tmp_path_factory.mktemp("given")
    lines = (data.PROMPTS / "heldout.jsonl").read_text("utf-8").splitlines()[:3]
    (folder / "three.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    example_profile().write(folder / "machine.toml")
    return ("--prompts", folder / "three.jsonl", "--profile", folder / "machine.toml", "-c", CACHE)


@pytest.fixture(scope="module")
def fitted(tmp_path_factory: pytest.TempPathFactory, options: tuple[object, ...]) -> Path:
    """A folder with the trace that was recorded with states, and what was fitted on it."""
    folder = tmp_path_factory.mktemp("states")
    plans = ("--plans", "eagle3:depth=3,top_k=3", "-n", 12)
    done("record", "-o", folder / "trace", "--states", *plans, *options)
    for kind in KINDS:
        fit = ("fit", "predictor", folder / "trace", "--kind", kind, "-o", folder / kind)
        done(*fit, "--least-distinct", 0)
    return folder


def test_a_trace_with_states_says_so(fitted: Path) -> None:
    said = json.loads((fitted / "trace" / "metadata.json").read_text("utf-8"))
    assert (said["format_version"], said["state_width"]) == (3, 128)
    done("check", "trace", fitted / "trace")


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_done_live_is_done_again(
    fitted: Path, options: tuple[object, ...], tmp_path: Path, kind: str
) -> None:
    """Recording with a predictor of states keeps them; the replay decides the same by itself."""
    spec = f"{kind}:folder={fitted / kind}"
    done("record", "-o", tmp_path / "run", "-n", 16, "--predictor", spec, *options)
    trace = TraceReader(tmp_path / "run")
    rows = [row for prompt in trace.prompts() for row in prompt.rows()]
    strip_decisions(tmp_path / "run", tmp_path / "bare")
    said = trace.metadata
    assert said.hardware is not None
    results = replay(
        TraceReader(tmp_path / "bare"),
        SpecFit(),
        make_cache(CACHE, said.geometry),
        said.hardware,
        cost=ProfileCost(said.hardware),
        predictor=predictors.build(kind, {"folder": str(fitted / kind)}),
        acceptance=load_inputs(TINY, said.geometry, said.sampling)[1],
    )
    cycles = [cycle for result in results for cycle in result.cycles]
    assert len(cycles) == len(rows) > 3
    for cycle, row in zip(cycles, rows, strict=True):
        assert isinstance(row, CycleRow) and row.decisions is not None
        answer, decided = cycle.outcome.verification, row.decisions
        assert cycle.outcome.selection.nodes.tolist() == decided.selected.tolist()
        assert cycle.outcome.committed == tuple(decided.committed.tolist())
        assert answer.num_hits.tolist() == decided.num_hits.tolist()
        assert answer.num_misses.tolist() == decided.num_misses.tolist()
        assert cycle.outcome.selection.prediction == decided.prediction
    assert max(len(row.decisions.selected) for row in rows if row.decisions) > 1  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", KINDS)
def test_fitted_ones_are_checked_by_spec(fitted: Path, kind: str) -> None:
    good = done("check", "predictor", f"{kind}:folder={fitted / kind}")
    assert " keeps V1, V2, V3, V4, V5" in " ".join(good.stdout.split())


def test_a_trace_without_states_says_how_to_record_them(
    fitted: Path, options: tuple[object, ...], tmp_path: Path
) -> None:
    done("record", "-o", tmp_path / "plain", "-n", 4, *options)
    spec = f"hidden-probe:folder={fitted / 'hidden-probe'}"
    replayed = run("replay", tmp_path / "plain", "--predictor", spec)
    fit = run("fit", "predictor", tmp_path / "plain", "--kind", KINDS[1], "-o", tmp_path / "fit")
    for refused in (replayed, fit):
        assert refused.exit_code == 2
        assert "holds no hidden states" in " ".join(refused.stderr.split())
        assert "--states" in refused.stderr


def test_they_are_bound_to_the_head_too(
    fitted: Path, options: tuple[object, ...], tmp_path: Path
) -> None:
    for file in (TINY / "eagle3").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    with (tmp_path / "config.json").open("a") as file:
        file.write("\n")
    spec = f"hidden-probe:folder={fitted / 'hidden-probe'}"
    refused = run("decode", "--head", tmp_path, "--predictor", spec, "-n", 2, *options)
    assert refused.exit_code == 2
    assert "was fitted on another model or head" in " ".join(refused.stderr.split())


def test_without_a_head_there_are_no_states() -> None:
    for drafter, message in (("none", "TorchBackend has no"), ("ngram", "drafter 'ngram' has no")):
        with load("tiny", drafter=drafter) as backend:
            with pytest.raises(BackendError, match=f"{message} hidden states"):
                backend.keep_states()


def test_routers_are_read_as_the_target_applies_them(tmp_path: Path) -> None:
    """On a state of unit size, the logits of each layer's norm and router."""
    import torch

    model = make_target(tmp_path)
    generator = torch.Generator().manual_seed(0)
    for layer in model.model.layers:
        layer.post_attention_layernorm.weight.data.uniform_(0.5, 2, generator=generator)
    model.save_pretrained(tmp_path)
    routers = read_routers(tmp_path)
    state = torch.randn(3, routers.shape[2], generator=generator)
    unit = state / state.pow(2).mean(-1, keepdim=True).sqrt()
    for layer, weights in zip(model.model.layers, routers, strict=True):
        normed = layer.post_attention_layernorm(state)
        expected = (normed @ layer.mlp.gate.weight.T).detach().numpy()
        np.testing.assert_allclose(unit.numpy() @ weights.T, expected, atol=1e-4)


def test_a_checkpoint_without_plain_routers_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    make_target(tmp_path)
    (path,) = tmp_path.glob("*.safetensors")
    tensors = load_file(path)
    del tensors["model.layers.0.mlp.gate.weight"]
    save_file(tensors, path)
    with pytest.raises(CheckpointError, match=r"no plain model.layers.0.mlp.gate.weight"):
        read_routers(tmp_path)
