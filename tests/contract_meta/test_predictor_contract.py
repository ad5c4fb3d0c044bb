"""For each rule of the predictor and acceptance contracts a model that breaks only that rule."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from numpy.typing import NDArray

from specfit.core.errors import ContractError
from specfit.core.history import RoutingHistory
from specfit.core.policy import Outcome
from specfit.core.predictor import AcceptanceModel, CoveragePredictor
from specfit.core.tree import DraftTree
from specfit.testing.acceptance_contract import AcceptanceContract, check_acceptance
from specfit.testing.examples import DrafterAcceptance, UniformPredictor
from specfit.testing.predictor_contract import CoveragePredictorContract, check_predictor
from specfit.testing.toy import ToyBackend
from specfit.testing.worlds import ToyOracle

GEOMETRY = CoveragePredictorContract.geometry


class Sound(UniformPredictor):
    """Every expert is equally likely."""

    def __init__(self) -> None:
        super().__init__(GEOMETRY)


class Certain(Sound):
    def predict(self, tree: DraftTree, history: RoutingHistory, first: int) -> NDArray[np.float32]:
        probs = super().predict(tree, history, first)
        probs[:, :, 0] += 1.0
        probs[:, :, 1:] -= 1.0 / (GEOMETRY.num_experts - 1)
        return probs


class Transposed(Sound):
    def predict(self, tree: DraftTree, history: RoutingHistory, first: int) -> NDArray[np.float32]:
        return super().predict(tree, history, first).swapaxes(1, 2)


class Overdone(Sound):
    novelty = 1.25


class SumsToOne(Sound):
    def predict(self, tree: DraftTree, history: RoutingHistory, first: int) -> NDArray[np.float32]:
        return super().predict(tree, history, first) / np.float32(GEOMETRY.experts_per_token)


class Shuffles(Sound):
    """Moves a little probability between experts, elsewhere at each question."""

    count = 0

    def predict(self, tree: DraftTree, history: RoutingHistory, first: int) -> NDArray[np.float32]:
        Shuffles.count += 1
        probs = super().predict(tree, history, first)
        probs[:, :, Shuffles.count % 7] += 0.01
        probs[:, :, Shuffles.count % 7 + 1] -= 0.01
        return probs


class LooksAtLaterNodes(Sound):
    def predict(self, tree: DraftTree, history: RoutingHistory, first: int) -> NDArray[np.float32]:
        probs = super().predict(tree, history, first)
        probs[:, :, int(tree.tokens[-1]) % 8] += 0.01
        probs[:, :, 8] -= 0.01
        return probs


class ClearsTheHistory(Sound):
    def predict(self, tree: DraftTree, history: RoutingHistory, first: int) -> NDArray[np.float32]:
        history._length += 1
        return super().predict(tree, history, first)


class OtherwiseByLayers(Sound):
    """Says of some layers alone what it does not say of all."""

    def predict_layers(
        self, tree: DraftTree, history: RoutingHistory, first: int, layers: NDArray[np.bool_]
    ) -> NDArray[np.float32]:
        return self.predict(tree, history, first)[:, layers] * np.float32(0.5)


PREDICTORS: list[tuple[str, Callable[[], CoveragePredictor]]] = [
    ("V1", Certain),
    ("V1", Transposed),
    ("V1", Overdone),
    ("V2", SumsToOne),
    ("V3", Shuffles),
    ("V4", LooksAtLaterNodes),
    ("V4", ClearsTheHistory),
    ("V5", OtherwiseByLayers),
]


class Peeks(Sound):
    """Asks the backend for the routing before the target has run."""

    def connect(self, backend: ToyBackend) -> None:
        self.backend = backend

    def predict(self, tree: DraftTree, history: RoutingHistory, first: int) -> NDArray[np.float32]:
        return ToyOracle(self.backend).predict(tree, history, first)


class PeeksOnceItKnowsTheText(Peeks):
    """Guesses while there is no history, and asks the backend from then on."""

    def predict(self, tree: DraftTree, history: RoutingHistory, first: int) -> NDArray[np.float32]:
        if history.num_tokens == 0:
            return Sound.predict(self, tree, history, first)
        return super().predict(tree, history, first)


class Louder(DrafterAcceptance):
    def calibrate(self, tree: DraftTree) -> NDArray[np.float64]:
        return 1.5 * super().calibrate(tree)


class Narrow(DrafterAcceptance):
    def calibrate(self, tree: DraftTree) -> NDArray[np.float64]:
        return super().calibrate(tree).astype(np.float32)  # type: ignore[return-value]


class TakesTheRoot(DrafterAcceptance):
    def calibrate(self, tree: DraftTree) -> NDArray[np.float64]:
        return 0.5 * super().calibrate(tree)


class Hopeful(DrafterAcceptance):
    """As if the children of a node did not exclude each other."""

    def calibrate(self, tree: DraftTree) -> NDArray[np.float64]:
        return np.sqrt(super().calibrate(tree))


class Normalises(DrafterAcceptance):
    def calibrate(self, tree: DraftTree) -> NDArray[np.float64]:
        probs = super().calibrate(tree) / (1 + tree.num_levels)
        probs[0] = 1.0
        return probs


class Falls(DrafterAcceptance):
    def continuation(self, depth: int, top_k: int) -> float:
        return 1.0 / top_k


class Trembles(DrafterAcceptance):
    """Says 1 e-6 less at every other whole tree; what it says of one tree depends on the count."""

    count = 0

    def calibrate(self, tree: DraftTree) -> NDArray[np.float64]:
        self.count += 1
        probs = super().calibrate(tree) * (1 - 1e-6 * (self.count % 3 == 2))
        probs[0] = 1.0
        return probs


class Remembers(DrafterAcceptance):
    """Is taught by a text, and not reset by the next."""

    num_accepted = 0

    def calibrate(self, tree: DraftTree) -> NDArray[np.float64]:
        probs = super().calibrate(tree) * 0.99 ** min(self.num_accepted, 50)
        probs[0] = 1.0
        return probs

    def observe(self, outcome: Outcome) -> None:
        self.num_accepted += len(outcome.accepted)


class LearnsTooMuch(Remembers):
    """Doubles what it believes with every accepted node."""

    def calibrate(self, tree: DraftTree) -> NDArray[np.float64]:
        probs: NDArray[np.float64] = (
            DrafterAcceptance.calibrate(self, tree) * 2.0**self.num_accepted
        )
        probs[0] = 1.0
        return probs

    def reset(self) -> None:
        self.num_accepted = 0


ACCEPTANCE: list[tuple[str, Callable[[], AcceptanceModel]]] = [
    ("A1", Louder),
    ("A1", Narrow),
    ("A1", TakesTheRoot),
    ("A2", Hopeful),
    ("A3", Normalises),
    ("A4", Falls),
    ("A5", Trembles),
    ("A6", Remembers),
    ("A6", LearnsTooMuch),
]


def test_sound_models_pass() -> None:
    assert check_predictor(Sound) == [f"V{i}" for i in range(1, 6)]
    assert check_acceptance(DrafterAcceptance) == [f"A{i}" for i in range(1, 7)]


@pytest.mark.parametrize(("rule", "make"), PREDICTORS)
def test_the_broken_rule_of_a_predictor_is_named(
    rule: str, make: Callable[[], CoveragePredictor]
) -> None:
    with pytest.raises(ContractError) as error:
        check_predictor(make)
    assert error.value.rule == rule, str(error.value)


@pytest.mark.parametrize("make", [Peeks, PeeksOnceItKnowsTheText])
def test_a_predictor_that_peeks_is_caught(make: Callable[[], CoveragePredictor]) -> None:
    with pytest.raises(ContractError, match=r"V4: it knows the routing of nodes"):
        check_predictor(make)


@pytest.mark.parametrize(("rule", "make"), ACCEPTANCE)
def test_the_broken_rule_of_an_acceptance_model_is_named(
    rule: str, make: Callable[[], AcceptanceModel]
) -> None:
    with pytest.raises(ContractError) as error:
        check_acceptance(make)
    assert error.value.rule == rule, str(error.value)


def test_every_rule_has_a_mutant() -> None:
    assert {rule for rule, _ in PREDICTORS} == set(CoveragePredictorContract.rules())
    assert {rule for rule, _ in ACCEPTANCE} == set(AcceptanceContract.rules())
