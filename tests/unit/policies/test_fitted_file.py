import json
from pathlib import Path

import numpy as np
import pytest

from specfit.core.errors import CheckpointError
from specfit.policies.fitted_file import FittedFile, TensorSpec

FILE = FittedFile("specimen", 1, {"numbers": TensorSpec(np.dtype(np.float32), 1)})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    FILE.save(tmp_path, {"numbers": np.ones(3, np.float32)}, {"size": 3}, {"from": "a test"})
    return tmp_path


def change_header(folder: Path, **entries: object) -> None:
    path = folder / "specimen.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | entries))


def test_save_then_load_is_the_identity(folder: Path) -> None:
    arrays, constants = FILE.load(folder)
    np.testing.assert_array_equal(arrays["numbers"], np.ones(3, np.float32))
    assert constants == {"size": 3}
    assert FILE.provenance(folder) == {"from": "a test"}


def test_a_cut_tensor_file_is_refused(folder: Path) -> None:
    path = folder / "specimen.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CheckpointError, match="sha256 differs"):
        FILE.load(folder)


def test_a_missing_file_is_named(folder: Path) -> None:
    (folder / "specimen.safetensors").unlink()
    assert FILE.exists_in(folder)
    with pytest.raises(CheckpointError, match=r"specimen\.safetensors cannot be read"):
        FILE.load(folder)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"extra": 1}, "must hold exactly"),
        ({"version": 2}, "version 2"),
        ({"kind": "x"}, "holds x"),
    ],
)
def test_another_header_is_refused(folder: Path, entries: dict, message: str) -> None:
    change_header(folder, **entries)
    with pytest.raises(CheckpointError, match=message):
        FILE.load(folder)


def test_a_header_that_is_not_json_is_refused(folder: Path) -> None:
    (folder / "specimen.json").write_text("{")
    with pytest.raises(CheckpointError, match="is not JSON"):
        FILE.load(folder)


@pytest.mark.parametrize(
    "arrays",
    [
        {},
        {"numbers": np.ones(3)},
        {"numbers": np.ones((3, 1), np.float32)},
        {"numbers": np.ones(3, np.float32), "more": np.ones(1)},
    ],
    ids=["missing", "dtype", "axes", "extra"],
)
def test_other_tensors_are_refused(tmp_path: Path, arrays: dict) -> None:
    FILE.save(tmp_path, arrays, {}, {})
    with pytest.raises(CheckpointError, match=r"must hold exactly numbers float32\[1d\]"):
        FILE.load(tmp_path)
