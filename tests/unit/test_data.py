"""What ships with the package is there, and is found by name; another name is told the nearest."""

from __future__ import annotations

from pathlib import Path

import pytest

from specfit.backends import load
from specfit.cli.live import open_live
from specfit.cli.live_options import LiveOptions
from specfit.cli.memory import model_shape
from specfit.core.errors import CheckpointError
from specfit.data import ESFT_ROUTING, PROMPTS, bundled_models, model_folder, profile_files


def test_what_is_named_is_there() -> None:
    assert ESFT_ROUTING.is_file()
    assert {path.stem for path in PROMPTS.glob("*.jsonl")} == {"demo", "tune", "heldout"}
    assert "pcie4-x16" in profile_files()
    assert all(path.is_file() for path in profile_files().values())
    assert {"tiny", "synth"} <= set(bundled_models())


def test_a_model_is_a_bundled_one_or_a_folder(tmp_path: Path) -> None:
    assert model_folder("tiny") == bundled_models()["tiny"]
    (tmp_path / "config.json").write_text("{}", encoding="utf-8")
    assert model_folder(tmp_path) == model_folder(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("name", ["tinny", "", "tiny/eagle3", "prompts"])
def test_every_way_in_refuses_a_model_in_the_same_words(name: str) -> None:
    words = rf"^no model '{name}': it must be a folder with a config\.json, or one of "
    with pytest.raises(CheckpointError, match=words):
        model_folder(name)
    with pytest.raises(CheckpointError, match=words):
        load(name)
    with pytest.raises(CheckpointError, match=words), open_live(LiveOptions(model=name)):
        pass
    with pytest.raises(CheckpointError, match=words):
        model_shape(name)


def test_the_nearest_of_all_names_is_given() -> None:
    with pytest.raises(CheckpointError, match="Did you mean 'tiny'"):
        model_folder("tinny")
    with pytest.raises(CheckpointError, match=r"synth, tiny, other\..* Did you mean 'other'"):
        model_folder("othr", ["other"])


def test_memory_knows_the_bundled_model() -> None:
    assert model_shape("tiny").num_experts > 0
