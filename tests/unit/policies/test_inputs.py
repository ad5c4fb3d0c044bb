import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from specfit.core.errors import CheckpointError
from specfit.core.experts import ModelGeometry
from specfit.core.history import NEVER, RoutingHistory
from specfit.core.noise import Sampling
from specfit.core.tree import DraftTree
from specfit.policies.acceptance import Adaptive, Identity
from specfit.policies.acceptance._kernels import NUM_LINES
from specfit.policies.acceptance._repeats import LONGEST_RUN
from specfit.policies.acceptance.acceptance_curves import CURVES_FILE, AcceptanceCurves
from specfit.policies.fingerprint import fingerprint
from specfit.policies.inputs import UnfittedInputsWarning, load_inputs
from specfit.policies.practice import warm_up
from specfit.policies.predictors import TokenTable, Uniform
from specfit.policies.predictors.expert_table import TABLE_FILE, ExpertTable

GEOMETRY = ModelGeometry(2, 4, 2, 100, 3)


@pytest.fixture
def model_dir(tmp_path: Path) -> Path:
    """A folder with files named as a checkpoint's; their content is never interpreted."""
    for folder, content in ((tmp_path, b"target"), (tmp_path / "eagle3", b"head")):
        folder.mkdir(exist_ok=True)
        (folder / "model.safetensors").write_bytes(content)
    return tmp_path


def ship_inputs(model_dir: Path) -> None:
    table = ExpertTable(
        geometry=GEOMETRY,
        fitted_on=fingerprint(model_dir),
        codes=np.zeros((1, 2, 4), np.uint8),
        odds_of_code=np.ones(256, np.float32),
        row_of_token=np.zeros(3, np.int32),
        parent_codes=np.zeros((1, 2, 4), np.uint8),
        odds_of_parent_code=np.ones(256, np.float32),
        parent_row_of_token=np.zeros(3, np.int32),
        age_edges=np.array([0], np.int64),
        temperatures=np.zeros(1),
        age_odds=np.ones((1, 1, 2, 2), np.float32),
        novelty=1.0,
    )
    table.save(TABLE_FILE, model_dir / "predictor", {})
    curves = AcceptanceCurves(
        fitted_on=fingerprint(model_dir, model_dir / "eagle3"),
        temperatures=np.zeros(1),
        weights=np.zeros((1, 1, 1, 4)),
        continuations=np.full((1, 1, 1), 0.5),
        lines=np.zeros((1, NUM_LINES, 2)),
        repeated_continuations=np.full((1, LONGEST_RUN + 1, 1, 1), 0.5),
    )
    curves.save(CURVES_FILE, model_dir / "acceptance", {})


def test_a_model_without_inputs_gets_the_fallbacks_and_warnings(model_dir: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        predictor, acceptance = load_inputs(model_dir, GEOMETRY, Sampling())
    assert isinstance(predictor, Uniform)
    assert isinstance(acceptance, Identity)
    assert [w.category for w in caught] == [UnfittedInputsWarning] * 2
    for warning, what in zip(caught, ("predictor", "acceptance"), strict=True):
        assert f"specfit fit {what} TRACE --out FOLDER" in str(warning.message)


def test_shipped_inputs_are_loaded(model_dir: Path) -> None:
    ship_inputs(model_dir)
    predictor, acceptance = load_inputs(model_dir, GEOMETRY, Sampling(temperature=0.7))
    assert isinstance(predictor, TokenTable)
    assert isinstance(acceptance, Adaptive)
    assert acceptance.temperature == 0.7
    warm_up(predictor, acceptance, GEOMETRY)


def test_warming_up_asks_what_a_cycle_asks() -> None:
    asked: list[tuple[int, bool]] = []

    class Sees(Uniform):
        novelty = 0.5

        def predict(self, tree: DraftTree, history: RoutingHistory, first: int) -> Any:
            asked.append((history.num_tokens, bool(history.ages.min() < NEVER)))
            return super().predict(tree, history, first)

    warm_up(Sees(GEOMETRY), Identity(), GEOMETRY)
    assert asked == [(1, True), (1, True)]  # of the root, and of a level


def test_inputs_of_another_head_are_refused(model_dir: Path) -> None:
    ship_inputs(model_dir)
    (model_dir / "eagle3" / "model.safetensors").write_bytes(b"HEAD")
    with pytest.raises(CheckpointError, match="acceptance was fitted on other weights"):
        load_inputs(model_dir, GEOMETRY, Sampling())


def test_inputs_of_another_target_are_refused(model_dir: Path) -> None:
    ship_inputs(model_dir)
    (model_dir / "model.safetensors").write_bytes(b"TARGET")
    with pytest.raises(CheckpointError, match="predictor was fitted on other weights"):
        load_inputs(model_dir, GEOMETRY, Sampling())


def test_a_folder_without_weights_has_no_fingerprint(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="holds no"):
        fingerprint(tmp_path)


def test_a_fingerprint_sees_the_end_of_a_large_file(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(bytes(3 << 20))
    before = fingerprint(tmp_path)
    path.write_bytes(bytes((3 << 20) - 1) + b"x")
    assert fingerprint(tmp_path) != before
