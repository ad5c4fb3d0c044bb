"""Every shipped acceptance model keeps the acceptance contract."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from specfit.core.predictor import acceptance_models
from specfit.policies.acceptance import (
    Adaptive,
    DepthRank,
    Identity,
    Isotonic,
    Logistic,
    Online,
    Temperature,
)
from specfit.policies.acceptance._kernels import NUM_LINES
from specfit.policies.acceptance._repeats import LONGEST_RUN
from specfit.policies.acceptance.acceptance_curves import CURVES_FILE, AcceptanceCurves
from specfit.policies.acceptance.calibrated import Calibrated, Calibration
from specfit.testing.acceptance_contract import AcceptanceContract
from tests.contract.shipped import shipped


class TestIdentity(AcceptanceContract):
    make = staticmethod(Identity)


@pytest.mark.parametrize("temperature", [0.0, 0.4, 2.0])
class TestDepthRank(AcceptanceContract):
    @pytest.fixture(autouse=True)
    def _fitted(self, tmp_path: Path, temperature: float) -> None:
        random_curves().save(CURVES_FILE, tmp_path, {"of": "random numbers"})
        self.make = lambda: DepthRank(str(tmp_path), temperature)  # type: ignore[method-assign]


class TestAdaptive(AcceptanceContract):
    @pytest.fixture(autouse=True)
    def _fitted(self, tmp_path: Path) -> None:
        random_curves().save(CURVES_FILE, tmp_path, {"of": "random numbers"})
        self.make = lambda: Adaptive(str(tmp_path))  # type: ignore[method-assign]


class TestOnline(AcceptanceContract):
    make = staticmethod(lambda: Online(memory=0.9, caution=1.0))


@pytest.mark.parametrize("kind", [Temperature, Isotonic, Logistic])
class TestCalibrated(AcceptanceContract):
    @pytest.fixture(autouse=True)
    def _fitted(self, tmp_path: Path, kind: type[Calibrated]) -> None:
        generator = np.random.default_rng(4)
        numbers: dict[type[Calibrated], dict[str, np.ndarray]] = {
            Temperature: {"inverse_temperatures": generator.random((3, 4))},
            Isotonic: {
                "edges": np.array([-4.0, -1.0, -0.1]),
                "values": np.sort(generator.random((3, 4, 4)), axis=2),
            },
            Logistic: {"weights": generator.standard_normal(6)},
        }
        shares = np.sort(generator.random((3, 5)), axis=1)
        fit = Calibration("0" * 64, shares, numbers[kind])
        fit.save(kind.file, tmp_path, {"of": "random numbers"})
        self.make = lambda: kind(str(tmp_path))  # type: ignore[call-arg, method-assign]


def random_curves() -> AcceptanceCurves:
    """Return curves of random coefficients: two temperatures, three depths, four ranks."""
    generator = np.random.default_rng(0)
    continuations = np.sort(generator.random((2, 3, 5)), axis=2)
    weights = generator.standard_normal((2, 3, 4, 4))
    lines = np.stack(
        [generator.standard_normal((2, NUM_LINES)), generator.random((2, NUM_LINES))], axis=2
    )
    repeated = np.sort(generator.random((2, LONGEST_RUN + 1, 3, 5)), axis=3)
    return AcceptanceCurves("0" * 64, np.array([0.0, 1.0]), weights, continuations, lines, repeated)


def test_every_shipped_model_is_held_to_it() -> None:
    fitted = {DepthRank, Adaptive, Temperature, Isotonic, Logistic}
    assert shipped(acceptance_models) == {Identity, Online, *fitted}
