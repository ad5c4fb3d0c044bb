"""The oracle says what the trace holds; the noisy one is right as often as it says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.decode import CycleRecord, Observer
from specfit.core.errors import ContractError, InvalidInputError
from specfit.core.experts import ExpertCoverage
from specfit.core.history import RoutingHistory
from specfit.core.policy import Cycle
from specfit.core.selection import Selection
from specfit.core.tree import DraftTree
from specfit.policies import Eagle3
from specfit.sim.oracle import NoisyOracle, Oracle
from specfit.sim.replay import TraceReference, replay
from specfit.sim.trace import TraceReader
from specfit.testing.examples import DrafterAcceptance, example_geometry, example_profile
from specfit.testing.predictor_contract import check_predictor
from tests.unit.sim.traces import write_positions


class Seen(Observer):
    """Keeps what was predicted of the verified nodes, and what they needed."""

    def __init__(self) -> None:
        self.predicted: list[NDArray[np.float32]] = []
        self.needed: list[NDArray[np.bool_]] = []

    def on_cycle(self, record: CycleRecord) -> None:
        answer = record.outcome.verification
        self.predicted.append(record.outcome.cycle.expert_probs.probs[answer.nodes])
        self.needed.append(ExpertCoverage(answer.routing, 16).mask)


class Asks(Eagle3):
    """Looks at the predicted experts before it selects."""

    def select(self, cycle: Cycle) -> Selection:
        assert len(cycle.expert_probs.probs) == len(cycle.tree)
        return super().select(cycle)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> TraceReader:
    folder = tmp_path_factory.mktemp("oracle") / "positions"
    write_positions(folder)
    return TraceReader(folder)


def seen(trace: TraceReader, predictor: TraceReference) -> tuple[NDArray, NDArray]:
    watcher, profile = Seen(), example_profile()
    results = replay(
        trace,
        Asks(4, 3, 30),
        make_cache("lru:50%", example_geometry()),
        profile,
        cost=ProfileCost(profile),
        predictor=predictor,
        acceptance=DrafterAcceptance(),
        observers=[watcher],
    )
    assert sum(1 for _ in results) == 3
    return np.concatenate(watcher.predicted), np.concatenate(watcher.needed)


def test_the_oracle_is_right(trace: TraceReader) -> None:
    predicted, needed = seen(trace, Oracle())
    assert np.array_equal(predicted, needed.astype(np.float32))


@pytest.mark.parametrize("recall", [0.4, 0.8, 1.0])
def test_the_noisy_oracle_is_calibrated(trace: TraceReader, recall: float) -> None:
    """Over 2,000 draws or more: five standard errors are less than 0.06."""
    predicted, needed = seen(trace, NoisyOracle(recall))
    named = predicted == np.float32(recall)
    assert np.array_equal(named.sum(axis=2), np.full(named.shape[:2], 2))
    assert needed[named].mean() == pytest.approx(recall, abs=0.06)
    assert predicted.mean() == pytest.approx(needed.mean(), abs=1e-6)
    low = (1 - recall) * 2 / 14
    assert needed[~named].mean() == pytest.approx(low, abs=0.02)


def test_noise_depends_on_the_key_and_on_nothing_else(trace: TraceReader) -> None:
    (one, _), (again, _) = (seen(trace, NoisyOracle(0.5, key=1)) for _ in range(2))
    other, _ = seen(trace, NoisyOracle(0.5, key=2))
    assert np.array_equal(one, again)
    assert not np.array_equal(one, other)


def test_an_oracle_is_of_no_use_live() -> None:
    with pytest.raises(InvalidInputError, match="Use it with replay"):
        Oracle().predict(DraftTree.root(1), RoutingHistory(example_geometry()), 0)


def test_a_recall_is_a_probability() -> None:
    with pytest.raises(InvalidInputError, match="between 0 and 1; got 80"):
        NoisyOracle(80.0)


def test_the_contract_catches_both(tmp_path: Path) -> None:
    for make in (Oracle, NoisyOracle):
        with pytest.raises(ContractError, match="V4: it knows the routing"):
            check_predictor(make)
