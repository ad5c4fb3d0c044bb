"""An ensemble hands on the target's temperature, and keeps the novelty it was fitted with."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specfit.cli.input_specs import predictor_from
from specfit.core.errors import InvalidInputError
from specfit.core.history import RoutingHistory
from specfit.core.tree import DraftTree
from specfit.policies.predictors import Ensemble, PreviousToken, TokenTable
from specfit.policies.predictors.ensemble import ENSEMBLE_FILE, EnsembleFit
from specfit.policies.predictors.expert_table import TABLE_FILE
from specfit.testing.predictor_contract import CoveragePredictorContract
from tests.contract.test_predictors import random_table, save_scores

GEOMETRY = CoveragePredictorContract.geometry


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A table fitted at two temperatures, weighing 1, and a member that weighs nothing."""
    members = ("previous-token", "token-table")
    save_scores(PreviousToken, tmp_path / members[0])
    table = replace(random_table(), novelty=0.8)
    table.save(TABLE_FILE, tmp_path / members[1], {"of": "random numbers"})
    weights = np.repeat([[0.0], [1.0]], GEOMETRY.num_layers, axis=1)
    fit = EnsembleFit(GEOMETRY, "0" * 64, members, weights, np.zeros(GEOMETRY.num_layers))
    fit.save(ENSEMBLE_FILE, tmp_path, {"of": "random numbers"})
    return tmp_path


def test_the_novelty_is_that_of_the_member_fitted_with_one(folder: Path) -> None:
    assert Ensemble(str(folder)).novelty == 0.8


@pytest.mark.parametrize("temperature", [0.0, 0.4, 1.0])
def test_members_predict_at_the_temperature_of_the_target(folder: Path, temperature: float) -> None:
    ensemble = predictor_from(f"ensemble:folder={folder}", GEOMETRY, temperature)
    tree, history = DraftTree.root(3), RoutingHistory(GEOMETRY)
    history.append(np.tile(np.arange(2, dtype=np.int16), (5, GEOMETRY.num_layers, 1)))
    alone = TokenTable(str(folder / "token-table"), temperature).predict(tree, history, 0)
    other = TokenTable(str(folder / "token-table"), 0.7).predict(tree, history, 0)
    found = ensemble.predict(tree, history, 0)
    assert found == pytest.approx(alone, abs=5e-3)
    assert found != pytest.approx(other, abs=5e-3)


def test_its_spec_says_the_temperature(folder: Path) -> None:
    made = predictor_from(f"ensemble:folder={folder},temperature=0.4", GEOMETRY, 1.0)
    assert made == Ensemble(str(folder), 0.4)
    assert made.to_spec()["params"] == {"folder": str(folder), "temperature": 0.4}


@pytest.mark.parametrize(
    ("members", "weights", "intercepts"),
    [(2, (1, 3), (3,)), (2, (2, 3), (2,)), (0, (0, 3), (3,))],
)
def test_arrays_that_do_not_fit_are_all_named(
    members: int, weights: tuple[int, ...], intercepts: tuple[int, ...]
) -> None:
    said = f"got {members} members, {list(weights)} and {list(intercepts)}. Fit again."
    with pytest.raises(InvalidInputError, match=re.escape(said)):
        EnsembleFit(
            GEOMETRY, "0" * 64, ("a", "b")[:members], np.zeros(weights), np.zeros(intercepts)
        )
