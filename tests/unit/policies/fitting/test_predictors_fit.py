"""Fitted predictors on traces of the toy: they keep the contract, and say more than nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import specfit.policies  # noqa: F401 - registers the predictors
from specfit.core.errors import CheckpointError, InvalidInputError
from specfit.core.experts import ExpertCoverage
from specfit.core.observed import ObservedText
from specfit.core.predictor import CoveragePredictor, predictors
from specfit.policies.fitting.predictors import KINDS, PredictorFit
from specfit.policies.fitting.samples import routing_sample, split_texts
from specfit.sim.observe import observed_texts, without_looping
from specfit.sim.trace import TraceReader
from specfit.testing.examples import UniformPredictor, example_geometry
from specfit.testing.predictor_contract import check_predictor
from tests.unit.sim.traces import write_positions, write_run

GEOMETRY = example_geometry()


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> list[ObservedText]:
    folder = tmp_path_factory.mktemp("fits") / "positions"
    write_positions(folder, with_states=True)
    return list(observed_texts(TraceReader(folder)))


@pytest.fixture(scope="module")
def fitted(texts: list[ObservedText], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fitted")
    fit = PredictorFit(
        texts, GEOMETRY, "f" * 64, {"of": "the toy"}, max_nodes=2000, routers=random_routers()
    )
    for kind in KINDS:
        fit.write(kind, folder / kind)
    return folder


def random_routers() -> NDArray[np.float32]:
    """Return routers for the states of the toy, which has none: they say nothing."""
    shape = (GEOMETRY.num_layers, GEOMETRY.num_experts, GEOMETRY.vocab_size)
    return np.random.default_rng(0).standard_normal(shape, np.float32)


def loss(predictor: CoveragePredictor, texts: list[ObservedText]) -> float:
    """Return minus the mean log likelihood of what the nodes needed."""
    losses = []
    for text in texts:
        for draft, history in text.histories(GEOMETRY):
            probs = predictor.predict(draft.tree, history, 0)[draft.nodes].astype(np.float64)
            needed = ExpertCoverage(draft.routing, GEOMETRY.num_experts).mask
            losses.append(-np.log(np.clip(np.where(needed, probs, 1 - probs), 1e-6, 1)).mean())
    return float(np.mean(losses))


def test_of_a_node_that_follows_the_text_the_stream_has_all_above(
    texts: list[ObservedText],
) -> None:
    sample = routing_sample(texts, max_nodes=10**6)
    place, num_checked = 0, 0
    for text in texts:
        drafts = [draft for draft in text.drafts if draft.root < len(text.routing)]
        for draft in drafts:
            for node in draft.nodes:
                above = np.flatnonzero(draft.tree.ancestor_mask[node])[:-1]
                first = sample.roots[place]
                if sample.follows[place]:
                    rows = draft.routing[np.searchsorted(draft.nodes, above)]
                    np.testing.assert_array_equal(sample.stream[first : first + len(above)], rows)
                    num_checked += len(above) > 1
                place += 1
    assert place == len(sample.follows)
    assert 0 < num_checked < (sample.depths > 1).sum()


@pytest.mark.parametrize("kind", KINDS)
def test_a_fitted_predictor_keeps_the_contract(fitted: Path, kind: str) -> None:
    params = {"folder": str(fitted / kind)}
    check_predictor(lambda: predictors.build(kind, params), GEOMETRY)


@pytest.mark.parametrize("kind", KINDS)
def test_it_says_more_than_nothing(fitted: Path, texts: list[ObservedText], kind: str) -> None:
    """On the texts it was fitted on: whether it generalises is for the benchmarks to say."""
    predictor = predictors.build(kind, {"folder": str(fitted / kind)})
    assert loss(predictor, texts) < loss(UniformPredictor(GEOMETRY), texts)


@pytest.mark.parametrize("kind", KINDS)
def test_another_geometry_is_refused(fitted: Path, kind: str) -> None:
    predictor = predictors.build(kind, {"folder": str(fitted / kind)})
    predictor.check_geometry(GEOMETRY)
    with pytest.raises(CheckpointError, match="num_experts 16 where the target has 64"):
        predictor.check_geometry(example_geometry(num_experts=64))


@pytest.mark.parametrize("kind", KINDS)
def test_another_kinds_file_is_refused(fitted: Path, kind: str) -> None:
    other = next(k for k in KINDS if k != kind)
    predictor = predictors.build(kind, {"folder": str(fitted / other)})
    with pytest.raises(CheckpointError, match=r"\.json cannot be read"):
        predictor.check_geometry(GEOMETRY)


def test_unknown_kinds_and_too_few_texts_are_refused(texts: list[ObservedText]) -> None:
    fit = PredictorFit(texts[:1], GEOMETRY, "f" * 64, {})
    with pytest.raises(InvalidInputError, match="Did you mean 'token-table'"):
        fit.write("token-tabel", Path("nowhere"))
    with pytest.raises(InvalidInputError, match="at least 2 texts"):
        fit.write("previous-token", Path("nowhere"))


def test_routers_are_needed_where_they_are_applied(texts: list[ObservedText]) -> None:
    fit = PredictorFit(texts, GEOMETRY, "f" * 64, {})
    with pytest.raises(InvalidInputError, match=r"none were given. Name the checkpoint's folder"):
        fit.write("target-routers", Path("nowhere"))


def test_texts_are_split_evenly_and_wholly(texts: list[ObservedText]) -> None:
    fitted, held = split_texts(texts, 1)
    assert {id(t) for t in (*fitted, *held)} == {id(t) for t in texts}


def test_the_routing_of_a_run_is_that_of_its_positions(
    tmp_path: Path, texts: list[ObservedText]
) -> None:
    """A run's verified nodes, and the text they grew on, are those of the position trace."""
    write_run(tmp_path / "run")
    for run, positions in zip(observed_texts(TraceReader(tmp_path / "run")), texts, strict=True):
        length = min(len(run.routing), len(positions.routing))
        assert np.array_equal(run.routing[:length], positions.routing[:length])
        by_root = {draft.root: draft for draft in positions.drafts}
        for draft in run.drafts:
            if draft.root in by_root:
                assert np.array_equal(draft.routing[0], by_root[draft.root].routing[0])


def test_texts_that_repeat_themselves_are_left_out(texts: list[ObservedText]) -> None:
    loops = replace(texts[0], tokens=(1, 2, 3) * 10)
    short = replace(texts[0], tokens=(1, 2))
    assert without_looping([loops, texts[1], short]) == [texts[1], short]
    assert without_looping([loops], 0.0) == [loops]


def test_histories_end_before_the_root(texts: list[ObservedText]) -> None:
    for draft, history in texts[0].histories(GEOMETRY):
        assert history.num_tokens == draft.root
        assert np.array_equal(history.recent(1)[0], texts[0].routing[draft.root - 1])
