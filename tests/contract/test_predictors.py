"""Every shipped coverage predictor keeps the predictor contract."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from specfit.core.history import RoutingHistory
from specfit.core.predictor import predictors
from specfit.core.tree import DraftTree
from specfit.policies.predictors import (
    DecayedFrequency,
    Ensemble,
    HiddenProbe,
    PreviousToken,
    RoutingProbe,
    TargetRouters,
    TokenTable,
    Uniform,
    scored,
)
from specfit.policies.predictors._normalise import normalise
from specfit.policies.predictors.ensemble import ENSEMBLE_FILE, EnsembleFit
from specfit.policies.predictors.expert_table import TABLE_FILE, ExpertTable
from specfit.policies.predictors.fitted import FittedPredictor
from specfit.policies.predictors.scored import ScoredPredictor, ScoreFit
from specfit.sim.oracle import NoisyOracle, Oracle
from specfit.testing.predictor_contract import CoveragePredictorContract
from tests.contract.shipped import shipped


class TestUniform(CoveragePredictorContract):
    make = staticmethod(lambda: Uniform(CoveragePredictorContract.geometry))


class TestTokenTable(CoveragePredictorContract):
    @pytest.fixture(autouse=True)
    def _fitted(self, tmp_path: Path) -> None:
        random_table().save(TABLE_FILE, tmp_path, {"of": "random numbers"})
        self.make = lambda: TokenTable(str(tmp_path))  # type: ignore[method-assign]


SCORED = (PreviousToken, DecayedFrequency, RoutingProbe, HiddenProbe, TargetRouters)


@pytest.mark.parametrize("kind", SCORED)
class TestScored(CoveragePredictorContract):
    @pytest.fixture(autouse=True)
    def _fitted(self, tmp_path: Path, kind: type[ScoredPredictor]) -> None:
        save_scores(kind, tmp_path)
        self.make = lambda: kind(str(tmp_path))  # type: ignore[call-arg, method-assign]


class TestEnsemble(CoveragePredictorContract):
    @pytest.fixture(autouse=True)
    def _fitted(self, tmp_path: Path) -> None:
        members, g = ("token-table", "previous-token"), CoveragePredictorContract.geometry
        random_table().save(TABLE_FILE, tmp_path / members[0], {"of": "random numbers"})
        save_scores(PreviousToken, tmp_path / members[1])
        weights = np.random.default_rng(1).random((2, g.num_layers))
        fit = EnsembleFit(g, "0" * 64, members, weights, np.zeros(g.num_layers))
        fit.save(ENSEMBLE_FILE, tmp_path, {"of": "random numbers"})
        self.make = lambda: Ensemble(str(tmp_path))  # type: ignore[method-assign]


@pytest.mark.parametrize("kind", [HiddenProbe, TargetRouters, PreviousToken, Ensemble])
def test_asked_for_some_layers_it_works_out_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: type[FittedPredictor]
) -> None:
    """What the rest costs is most of a prediction's time; that the answer is the same, V5 says."""
    g = CoveragePredictorContract.geometry
    if kind is Ensemble:
        save_scores(HiddenProbe, tmp_path / "hidden-probe")
        weights = np.ones((1, g.num_layers))
        fit = EnsembleFit(g, "0" * 64, ("hidden-probe",), weights, np.zeros(g.num_layers))
        fit.save(ENSEMBLE_FILE, tmp_path, {"of": "ones"})
    else:
        save_scores(kind, tmp_path)
    predictor = kind(str(tmp_path))  # type: ignore[call-arg]
    states = np.ones((3, 24), np.float32)
    tree = replace(
        DraftTree.from_arrays(np.array([-1, 0, 1]), np.array([1, 0.5, 0.5])), states=states
    )
    history, seen = RoutingHistory(g), []
    history.append(np.zeros((2, g.num_layers, g.experts_per_token), np.int16))

    def watched(logits: NDArray[np.float64], total: float, out: NDArray[np.float32]) -> None:
        seen.append(logits.shape[1])
        normalise(logits, total, out)

    monkeypatch.setattr(scored, "normalise", watched)
    layers = np.arange(g.num_layers) == 1
    assert predictor.predict_layers(tree, history, 0, layers).shape == (3, 1, g.num_experts)
    assert set(seen) == {1}


def save_scores(kind: type[ScoredPredictor], folder: Path) -> None:
    """Write random numbers for a predictor that scores by the history, or by states [24]."""
    g, generator = CoveragePredictorContract.geometry, np.random.default_rng(3)
    size, rank = g.num_layers * g.num_experts, 4
    extra = {
        PreviousToken: {},
        DecayedFrequency: {"decay": np.array([0.9])},
        RoutingProbe: {
            "down": generator.standard_normal((size, rank)),
            "up": generator.standard_normal((5, rank, size)) / 10,
            "offset": generator.random((5, size)),
        },
        HiddenProbe: {
            "decay": np.array([0.9]),
            "down": generator.standard_normal((24, rank)),
            "up": generator.standard_normal((rank, size)) / 10,
            "offset": generator.random(size),
        },
        TargetRouters: {
            "decay": np.array([0.9]),
            "routers": generator.standard_normal((24, size), np.float32),
        },
    }[kind]
    slopes, intercepts = generator.standard_normal((2, 5, g.num_layers))
    fit = ScoreFit(g, "0" * 64, slopes, intercepts, extra)
    fit.save(kind.file, folder, {"of": "random numbers"})


def random_table() -> ExpertTable:
    """Return a table of random odds for every token, parent and age."""
    generator = np.random.default_rng(0)
    g = CoveragePredictorContract.geometry
    shape = (g.vocab_size, g.num_layers, g.num_experts)
    odds_of_code = np.exp(np.linspace(-6, 6, 256)).astype(np.float32)
    codes, parent_codes = generator.integers(0, 256, (2, *shape), dtype=np.uint8)
    return ExpertTable(
        geometry=g,
        fitted_on="0" * 64,
        codes=codes,
        odds_of_code=odds_of_code,
        row_of_token=generator.permutation(g.vocab_size).astype(np.int32),
        parent_codes=parent_codes,
        odds_of_parent_code=odds_of_code,
        parent_row_of_token=generator.permutation(g.vocab_size).astype(np.int32),
        age_edges=np.array([0, 3, 20], np.int64),
        temperatures=np.array([0.0, 1.0]),
        age_odds=np.exp(generator.standard_normal((2, 4, g.num_layers, 4))).astype(np.float32),
        novelty=0.9,
    )


def test_every_shipped_predictor_is_held_to_it() -> None:
    """But for the oracles, which break V4 on purpose: `tests/unit/sim/test_oracle.py`."""
    assert shipped(predictors) == {Uniform, TokenTable, *SCORED, Ensemble, Oracle, NoisyOracle}
