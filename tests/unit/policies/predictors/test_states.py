"""Predictors that look at the drafter's hidden states: roots, siblings, and what they refuse."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from specfit.core.backend import Backend, Request
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeLoop
from specfit.core.errors import BackendError, CheckpointError, InvalidInputError
from specfit.core.experts import ModelGeometry
from specfit.core.history import RoutingHistory
from specfit.core.tree import DraftTree
from specfit.policies import Eagle3
from specfit.policies.practice import warm_up
from specfit.policies.predictors import (
    DecayedFrequency,
    Ensemble,
    HiddenProbe,
    PreviousToken,
    TargetRouters,
)
from specfit.policies.predictors.ensemble import ENSEMBLE_FILE, EnsembleFit
from specfit.policies.predictors.scored import ScoreFit
from specfit.policies.predictors.states import StatePredictor, products, unit_states
from specfit.testing.examples import DrafterAcceptance, example_profile
from specfit.testing.toy import ToyBackend, toy_backend

GEOMETRY = ModelGeometry(3, 16, 2, 1000, 32)
WIDTH, SIZE = 5, 3 * 16
PARENTS = np.array([-1, 0, 0, 1, 1, 2], np.int32)
PROBS = np.where(PARENTS < 0, 1.0, 0.5)
KINDS = (HiddenProbe, TargetRouters)
GENERATOR = np.random.default_rng(0)
SLOPES, INTERCEPTS = GENERATOR.standard_normal((2, 4, 3))
DECAY = {"decay": np.array([0.9])}
EXTRA = {
    HiddenProbe: {
        "down": GENERATOR.standard_normal((WIDTH, 2)),
        "up": GENERATOR.standard_normal((2, SIZE)) / 10,
        "offset": GENERATOR.random(SIZE),
        **DECAY,
    },
    TargetRouters: {"routers": GENERATOR.standard_normal((WIDTH, SIZE), np.float32), **DECAY},
    DecayedFrequency: DECAY,
}


def saved(kind: type, folder: Path, **changed: object) -> Path:
    extra = {**EXTRA[kind], **changed}
    ScoreFit(GEOMETRY, "0" * 64, SLOPES.copy(), INTERCEPTS.copy(), extra).save(
        kind.file, folder, {}
    )
    return folder


def tree(width: int = WIDTH) -> DraftTree:
    """Return a tree with a state at each of the nodes 0, 1 and 2."""
    above = np.random.default_rng(1).standard_normal((3, width)).astype(np.float32)
    states = np.concatenate([np.zeros((1, width), np.float32), above[PARENTS[1:]]])
    return replace(DraftTree.from_arrays(PARENTS, PROBS), states=states)


def history(num_tokens: int = 9) -> RoutingHistory:
    drawn = np.random.default_rng(2).random((num_tokens, 3, 16)).argsort(axis=2)[:, :, :2]
    history = RoutingHistory(GEOMETRY)
    history.append(drawn.astype(np.int16))
    return history


@pytest.fixture(params=KINDS)
def predictor(request: pytest.FixtureRequest, tmp_path: Path) -> StatePredictor:
    made: StatePredictor = request.param(str(saved(request.param, tmp_path)))
    return made


@pytest.mark.parametrize("num_tokens", [0, 9])
def test_the_root_is_predicted_by_decayed_frequencies(
    predictor: StatePredictor, tmp_path: Path, num_tokens: int
) -> None:
    base = DecayedFrequency(str(saved(DecayedFrequency, tmp_path)))
    ours = predictor.predict(tree(), history(num_tokens), 0)[0]
    theirs = base.predict(tree(), history(num_tokens), 0)[0]
    assert ours.tobytes() == theirs.tobytes()
    root = predictor.predict(DraftTree.root(3), history(num_tokens), 0)
    assert root.tobytes() == theirs.tobytes()


def test_siblings_are_predicted_alike_and_each_family_by_its_state(
    predictor: StatePredictor,
) -> None:
    probs = predictor.predict(tree(), history(), 0)
    assert probs[1].tobytes() == probs[2].tobytes()
    assert probs[3].tobytes() == probs[4].tobytes()
    assert np.abs(probs[3] - probs[5]).max() > 1e-3


def test_the_size_of_a_state_says_nothing(predictor: StatePredictor) -> None:
    whole = tree()
    assert whole.states is not None
    larger = replace(whole, states=whole.states * np.float32(8))
    ours, theirs = (predictor.predict(t, history(), 0) for t in (whole, larger))
    np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_a_hidden_probe_is_a_linear_map(tmp_path: Path) -> None:
    extra = EXTRA[HiddenProbe]
    found = HiddenProbe(str(saved(HiddenProbe, tmp_path))).state_scores(np.eye(WIDTH))
    probs = np.clip(extra["down"] @ extra["up"] + extra["offset"], 2e-3, 1 - 2e-3)
    np.testing.assert_allclose(found.reshape(WIDTH, -1), np.log(probs / (1 - probs)))


def test_products_of_a_row_do_not_depend_on_the_others() -> None:
    rows, matrix = GENERATOR.standard_normal((9, 33)), GENERATOR.standard_normal((33, 70))
    whole = products(rows, matrix)
    np.testing.assert_allclose(whole, rows @ matrix)
    for row in range(9):
        assert products(rows[row:], matrix)[0].tobytes() == whole[row].tobytes()


def test_states_of_nothing_stay_nothing() -> None:
    assert not unit_states(np.zeros((1, WIDTH), np.float32)).any()


def test_a_drafted_tree_must_have_states(predictor: StatePredictor) -> None:
    bare = DraftTree.from_arrays(PARENTS, PROBS)
    with pytest.raises(InvalidInputError, match="Record the trace with `specfit record --states`"):
        predictor.predict(bare, history(), 0)
    with pytest.raises(InvalidInputError, match=r"must be 5 wide.*got 7"):
        predictor.predict(tree(7), history(), 0)


@pytest.mark.parametrize(
    ("kind", "changed"),
    [
        (HiddenProbe, {"down": np.ones((WIDTH, 3))}),
        (HiddenProbe, {"up": np.ones((2, SIZE - 1))}),
        (HiddenProbe, {"offset": np.ones(SIZE + 1)}),
        (HiddenProbe, {"decay": np.ones(2)}),
        (TargetRouters, {"routers": np.ones((WIDTH, SIZE + 16), np.float32)}),
        (TargetRouters, {"decay": np.ones(0)}),
    ],
)
def test_tensors_that_do_not_fit_are_refused(
    tmp_path: Path, kind: type, changed: dict[str, object]
) -> None:
    broken = kind(str(saved(kind, tmp_path, **changed)))
    with pytest.raises(CheckpointError, match="do not fit together"):
        broken.check_geometry(GEOMETRY)


def test_routers_that_are_no_numbers_are_refused() -> None:
    extra = {"routers": np.full((WIDTH, SIZE), np.nan, np.float32), **DECAY}
    with pytest.raises(InvalidInputError, match="routers must be finite"):
        ScoreFit(GEOMETRY, "", SLOPES.copy(), INTERCEPTS.copy(), extra)


def test_those_who_need_states_say_so(predictor: StatePredictor, tmp_path: Path) -> None:
    assert predictor.needs_states
    assert not DecayedFrequency(str(tmp_path)).needs_states
    saved(type(predictor), tmp_path / predictor.file.kind)
    saved(DecayedFrequency, tmp_path / "decayed-frequency")
    for members in ((predictor.file.kind,), ("decayed-frequency",)):
        weights, none = np.ones((1, 3)), np.zeros(3)
        fit = EnsembleFit(GEOMETRY, "0" * 64, members, weights, none)
        fit.save(ENSEMBLE_FILE, tmp_path, {})
        assert Ensemble(str(tmp_path)).needs_states == (members[0] != "decayed-frequency")
    assert not PreviousToken("nowhere").needs_states


def test_warming_up_scores_a_drafted_node(
    predictor: StatePredictor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what does it is compiled in the first request."""
    seen, kind = [], type(predictor)

    def scored(self: StatePredictor, states: NDArray[np.float64], *layers: Any) -> Any:
        seen.append(states.shape)
        return state_scores(self, states, *layers)

    state_scores = kind.state_scores
    monkeypatch.setattr(kind, "state_scores", scored)
    warm_up(predictor, DrafterAcceptance(), GEOMETRY, WIDTH)
    assert seen == [(1, WIDTH)]


class Stateless(ToyBackend):
    """A toy whose drafter has no hidden states."""

    keep_states = Backend.keep_states  # type: ignore[assignment]


def decode(backend: ToyBackend, predictor: StatePredictor | DecayedFrequency) -> bool:
    """Return whether the trees of a request were drafted with states."""
    loop = DecodeLoop(
        backend, Eagle3(2, 2, 5), ProfileCost(example_profile()), predictor, DrafterAcceptance()
    )
    cycles = loop.run(Request((1, 2, 3), 6)).cycles
    return cycles[0].outcome.cycle.tree.states is not None


def test_states_are_kept_for_those_alone_that_look_at_them(
    predictor: StatePredictor, tmp_path: Path
) -> None:
    plain = toy_backend(geometry=GEOMETRY)
    assert not decode(plain, DecayedFrequency(str(saved(DecayedFrequency, tmp_path))))
    assert decode(plain, predictor)
    bare = Stateless(plain.model, plain.cache, plain.profile)
    with pytest.raises(BackendError, match="Stateless has no hidden states of a drafter"):
        decode(bare, predictor)
