"""Fitted calibrations: they keep the contract, and undo a drafter that is sure of itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import specfit.policies  # noqa: F401 - registers the models
from specfit.core.backend import Request
from specfit.core.errors import CheckpointError, InvalidInputError
from specfit.core.observed import ObservedText
from specfit.core.predictor import AcceptanceModel, acceptance_models
from specfit.core.tree import DraftPlan
from specfit.policies.acceptance.acceptance_curves import CURVES_FILE
from specfit.policies.fitting.acceptance_curves import AcceptanceSample
from specfit.policies.fitting.calibration import (
    METHODS,
    AcceptanceFit,
    fit_temperature,
    pool_adjacent_violators,
)
from specfit.policies.fitting.samples import acceptance_sample
from specfit.sim.observe import observed_texts
from specfit.sim.record_positions import record_positions
from specfit.sim.trace import TraceReader, TraceWriter, metadata_of
from specfit.testing.acceptance_contract import check_acceptance
from specfit.testing.toy import toy_backend

PLANS = (DraftPlan(4, 3, 64),)
REQUESTS = tuple(Request(tuple(range(1, 10 + i)), 50) for i in range(6))


@pytest.fixture(scope="module")
def texts(tmp_path_factory: pytest.TempPathFactory) -> list[ObservedText]:
    """Texts whose drafter reports three times its log odds."""
    folder = tmp_path_factory.mktemp("sure") / "positions"
    backend = toy_backend(overconfidence=3.0)
    with TraceWriter.create(folder, metadata_of(backend, "positions", PLANS)) as writer:
        record_positions(backend, REQUESTS, PLANS, writer)
    return list(observed_texts(TraceReader(folder)))


@pytest.fixture(scope="module")
def fitted(texts: list[ObservedText], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("fitted")
    fit = AcceptanceFit(acceptance_sample(texts), 0.0, "f" * 64, {"of": "the toy"})
    for method in METHODS:
        fit.write(method, folder / method)
    return folder


def brier(model: AcceptanceModel, texts: list[ObservedText]) -> float:
    errors = []
    for draft in (draft for text in texts for draft in text.drafts):
        nodes, accepted = draft.judged()
        errors.append((model.calibrate(draft.tree)[nodes] - accepted) ** 2)
    return float(np.concatenate(errors).mean())


@pytest.mark.parametrize("method", METHODS)
def test_a_fitted_model_keeps_the_contract(fitted: Path, method: str) -> None:
    check_acceptance(lambda: acceptance_models.build(method, {"folder": str(fitted / method)}))


@pytest.mark.parametrize("method", METHODS)
def test_overconfidence_is_undone(fitted: Path, texts: list[ObservedText], method: str) -> None:
    before = brier(acceptance_models.make("identity"), texts)
    after = brier(acceptance_models.build(method, {"folder": str(fitted / method)}), texts)
    assert after < 0.97 * before


@pytest.mark.parametrize("method", METHODS)
def test_looping_texts_say_what_a_repetition_is_worth_and_nothing_else(
    texts: list[ObservedText], tmp_path: Path, method: str
) -> None:
    usual, looping = texts[:4], texts[4:]
    fits = {"with": acceptance_sample(usual, looping), "without": acceptance_sample(usual)}
    assert fits["with"].looping.sum() == len(acceptance_sample(looping).looping)
    models = {
        name: AcceptanceFit(sample, 0.0, "f" * 64, {}).write(method, tmp_path / name)
        for name, sample in fits.items()
    }
    tree = looping[0].drafts[0].tree
    assert np.array_equal(models["with"].calibrate(tree), models["without"].calibrate(tree))
    if method == "depth-rank":
        lines = [CURVES_FILE.load(tmp_path / name)[0]["lines"] for name in fits]
        assert not np.array_equal(*lines)


def test_looping_texts_alone_are_no_sample(texts: list[ObservedText], tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="texts that do not loop; got none"):
        AcceptanceFit(acceptance_sample([], texts), 0.0, "f" * 64, {}).write("isotonic", tmp_path)


def test_the_temperature_is_found() -> None:
    """Drawn with log odds divided by 3; five standard errors of the estimate are below 0.04."""
    generator = np.random.default_rng(0)
    odds = generator.normal(0.0, 3.0, 8000)
    log_probs = -np.logaddexp(0.0, -odds)
    accepted = generator.random(8000) < 1 / (1 + np.exp(-odds / 3))
    ones, zeros = np.ones(8000, np.int32), np.zeros(8000, np.int32)
    none = zeros.astype(np.int8)
    sample = AcceptanceSample(
        ones,
        zeros,
        log_probs.astype("f4"),
        zeros.astype("f4"),
        accepted,
        none,
        none,
        none > 0,
    )
    assert fit_temperature(sample)["inverse_temperatures"][0, 0] == pytest.approx(1 / 3, abs=0.04)


def test_online_learns_what_fitting_finds(texts: list[ObservedText]) -> None:
    model = acceptance_models.make("online:memory=0.999")
    before = brier(model, texts)
    for draft in (draft for text in texts for draft in text.drafts):
        nodes, accepted = draft.judged()
        model._learn(draft.tree, nodes, accepted)  # type: ignore[attr-defined]
    assert brier(model, texts) < 0.97 * before
    model.reset()
    assert brier(model, texts) == before


def test_judged_are_the_children_of_the_true_path(texts: list[ObservedText]) -> None:
    """By hand: follow the target's tokens down each tree."""
    for draft in texts[0].drafts[:10]:
        node, expected = 0, []
        while True:
            children = draft.tree.children(node).tolist()
            target = draft.target_tokens[node]
            hits = [c for c in children if draft.tree.tokens[c] == target]
            expected += [(c, c in hits) for c in children]
            if not hits:
                break
            node = hits[0]
        nodes, accepted = draft.judged()
        assert list(zip(nodes.tolist(), accepted.tolist(), strict=True)) == sorted(expected)


@pytest.mark.parametrize("method", METHODS)
def test_another_methods_file_is_refused(fitted: Path, method: str) -> None:
    other = next(m for m in METHODS if m != method)
    model = acceptance_models.build(method, {"folder": str(fitted / other)})
    with pytest.raises(CheckpointError, match=r"\.json cannot be read"):
        model.continuation(1, 1)


def test_unknown_methods_and_empty_samples_are_refused() -> None:
    types = (np.int32, np.int32, "f4", "f4", bool, np.int8, np.int8, bool)
    empty = AcceptanceSample(*(np.zeros(0, t) for t in types))
    with pytest.raises(InvalidInputError, match="Did you mean 'isotonic'"):
        AcceptanceFit(empty, 0.0, "f", {}).write("isotonik", Path("nowhere"))
    with pytest.raises(InvalidInputError, match="got none"):
        AcceptanceFit(empty, 0.0, "f", {}).write("isotonic", Path("nowhere"))


SEQUENCES = st.lists(st.tuples(st.floats(0, 1), st.floats(0.5, 9)), min_size=1, max_size=8)


@given(SEQUENCES)
def test_pool_adjacent_violators_is_the_min_max_formula(pairs: list[tuple[float, float]]) -> None:
    """The nearest non-decreasing sequence: max over starts of min over ends of block means."""
    values, weights = (np.array(column) for column in zip(*pairs, strict=True))

    def mean(first: int, last: int) -> float:
        block = slice(first, last + 1)
        return float(np.average(values[block], weights=weights[block]))

    n = len(values)
    expected = [max(min(mean(a, b) for b in range(i, n)) for a in range(i + 1)) for i in range(n)]
    found = pool_adjacent_violators(values, weights)
    assert found == pytest.approx(expected, abs=1e-9)
