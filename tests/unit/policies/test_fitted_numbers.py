import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import pytest

from specfit.core.errors import CheckpointError, InvalidInputError
from specfit.core.experts import ModelGeometry
from specfit.policies.acceptance.acceptance_curves import CURVES_FILE, AcceptanceCurves
from specfit.policies.fitted_file import FittedFile, TensorSpec
from specfit.policies.fitted_numbers import FittedNumbers, PredictorNumbers
from specfit.policies.predictors.ensemble import ENSEMBLE_FILE, EnsembleFit
from specfit.policies.predictors.expert_table import TABLE_FILE, ExpertTable
from tests.sources import PACKAGE

GEOMETRY = ModelGeometry(2, 4, 2, 100, 3)
FLOATS = TensorSpec(np.dtype(np.float64), 1)
FILE = FittedFile("specimen", 1, {"slopes": FLOATS, "decay": FLOATS, "offset": FLOATS})


@dataclass(frozen=True, eq=False)
class Specimen(PredictorNumbers):
    rest = "extra"

    slopes: np.ndarray
    extra: dict = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not np.isfinite(self.slopes).all():
            raise InvalidInputError("slopes must be finite.")
        super().__post_init__()


def specimen(slope: float = 1.0) -> Specimen:
    extra = {"decay": np.array([0.9]), "offset": np.array([0.1, 0.2])}
    return Specimen(GEOMETRY, "a target", np.array([slope]), extra)


def change_constants(folder: Path, constants: object) -> None:
    path = folder / "specimen.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"constants": constants}))


def test_what_was_saved_is_what_is_loaded(tmp_path: Path) -> None:
    specimen().save(FILE, tmp_path, {"of": "a test"})
    loaded = Specimen.load(FILE, tmp_path)
    assert (loaded.geometry, loaded.fitted_on) == (GEOMETRY, "a target")
    np.testing.assert_array_equal(loaded.slopes, [1.0])
    assert {name: array.tolist() for name, array in loaded.extra.items()} == {
        "decay": [0.9],
        "offset": [0.1, 0.2],
    }


def test_arrays_are_tensors_and_all_else_is_a_constant(tmp_path: Path) -> None:
    specimen().save(FILE, tmp_path, {"of": "a test"})
    arrays, constants = FILE.load(tmp_path)
    assert set(arrays) == {"slopes", "decay", "offset"}
    assert constants == {"geometry": asdict(GEOMETRY), "fitted_on": "a target"}
    assert FILE.provenance(tmp_path) == {"of": "a test"}


def test_fitted_numbers_are_read_only() -> None:
    made = specimen()
    for array in (made.slopes, *made.extra.values()):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 2.0


@pytest.mark.parametrize(
    "constants",
    [
        {"fitted_on": "a target"},
        {"geometry": asdict(GEOMETRY)},
        {"geometry": {"num_layers": 2}, "fitted_on": "a target"},
        {"geometry": asdict(GEOMETRY), "fitted_on": "a target", "more": 1},
        [],
    ],
    ids=["no geometry", "no target", "part of a geometry", "more", "no object"],
)
def test_other_constants_are_refused(tmp_path: Path, constants: object) -> None:
    specimen().save(FILE, tmp_path, {})
    change_constants(tmp_path, constants)
    with pytest.raises(CheckpointError, match="holds no usable specimen"):
        Specimen.load(FILE, tmp_path)


def test_numbers_that_break_the_rules_of_their_class_are_refused(tmp_path: Path) -> None:
    made = specimen()
    object.__setattr__(made, "slopes", np.array([np.nan]))
    made.save(FILE, tmp_path, {})
    with pytest.raises(CheckpointError, match=r"holds no usable specimen: slopes must be finite"):
        Specimen.load(FILE, tmp_path)


def test_a_tensor_of_no_field_is_refused_where_no_field_takes_the_rest(tmp_path: Path) -> None:
    @dataclass(frozen=True, eq=False)
    class Plain(FittedNumbers):
        slopes: np.ndarray

    specimen().save(FILE, tmp_path, {})
    change_constants(tmp_path, {})
    with pytest.raises(CheckpointError, match="holds no usable specimen"):
        Plain.load(FILE, tmp_path)


def test_an_ensemble_keeps_the_order_of_its_members(tmp_path: Path) -> None:
    weights = np.array([[1.0, 2.0], [3.0, 4.0]])
    EnsembleFit(GEOMETRY, "a target", ("b", "a"), weights, np.zeros(2)).save(
        ENSEMBLE_FILE, tmp_path, {}
    )
    assert EnsembleFit.load(ENSEMBLE_FILE, tmp_path).members == ("b", "a")


@pytest.mark.parametrize(
    ("numbers", "file", "name"),
    [(ExpertTable, TABLE_FILE, "predictor"), (AcceptanceCurves, CURVES_FILE, "acceptance")],
)
def test_shipped_numbers_are_written_back_byte_for_byte(
    tmp_path: Path, numbers: type[FittedNumbers], file: FittedFile, name: str
) -> None:
    folder = PACKAGE / "data" / "tiny" / name
    numbers.load(file, folder).save(file, tmp_path, file.provenance(folder))
    for end in ("json", "safetensors"):
        written = tmp_path / f"{file.kind}.{end}"
        assert written.read_bytes() == (folder / written.name).read_bytes()
