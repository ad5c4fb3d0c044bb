"""Every shipped coverage predictor keeps the predictor contract."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from specfit.core.predictor import predictors
from specfit.policies.predictors import TokenTable, Uniform
from specfit.policies.predictors.expert_table import ExpertTable
from specfit.testing.predictor_contract import CoveragePredictorContract
from tests.contract.shipped import shipped


class TestUniform(CoveragePredictorContract):
    make = staticmethod(lambda: Uniform(CoveragePredictorContract.geometry))


class TestTokenTable(CoveragePredictorContract):
    @pytest.fixture(autouse=True)
    def _fitted(self, tmp_path: Path) -> None:
        random_table().save(tmp_path, {"of": "random numbers"})
        self.make = lambda: TokenTable(str(tmp_path))  # type: ignore[method-assign]


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
        age_odds=np.exp(generator.standard_normal((4, g.num_layers, 4))).astype(np.float32),
    )


def test_every_shipped_predictor_is_held_to_it() -> None:
    assert shipped(predictors) == {Uniform, TokenTable}
