"""A head that is wired wrongly is found, and the wiring that it was trained with is chosen."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from specfit.backends import load
from specfit.backends.eagle3_checkpoint import OVERRIDES, HeadCheckpoint
from specfit.backends.head_check import Written, check_head, fit_of, write_texts
from specfit.cli.main import app
from specfit.core.errors import CheckpointError
from specfit.data import PROMPTS, model_folder

HEAD = model_folder("tiny") / "eagle3"
TUNE = PROMPTS / "tune.jsonl"


@pytest.fixture(scope="module")
def setting() -> tuple[Any, torch.Tensor, list[Written]]:
    with load("tiny", cache="lru:100%") as backend:
        lines = TUNE.read_text("utf-8").splitlines()[:3]
        prompts = [backend.tokenizer(json.loads(line)["text"]).input_ids for line in lines]
        texts = write_texts(backend.target, prompts, 40)
        return backend.checkpoint.config, backend.target.model.model.embed_tokens.weight, texts


def test_texts_are_the_targets_own(setting: tuple[Any, torch.Tensor, list[Written]]) -> None:
    config, _, texts = setting
    for text in texts:
        assert len(text.tokens) == text.num_prompt + 39
        assert text.features.shape[:2] == (len(text.tokens), config.num_hidden_layers)


WRONG: dict[str, dict[str, Any]] = {
    "aux_layer_ids": {"eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 3, 5]}},
    "norm_before_residual": {"norm_before_residual": True},
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_wiring_is_put_right(
    setting: tuple[Any, torch.Tensor, list[Written]], tmp_path: Path, fault: str
) -> None:
    config, embedding, texts = setting
    sound = HeadCheckpoint.load(HEAD, config)
    folder = tmp_path / "head"
    shutil.copytree(HEAD, folder)
    raw = json.loads((folder / "config.json").read_text("utf-8"))
    (folder / "config.json").write_text(json.dumps(raw | WRONG[fault]))
    wrong = HeadCheckpoint.load(folder, config)
    best = fit_of(sound, embedding, texts)
    report = check_head(wrong, embedding, texts)
    assert report.as_read.tokens_per_pass < best.tokens_per_pass
    assert report.best[fault] == getattr(sound, fault)
    (folder / OVERRIDES).write_text(json.dumps(report.best))
    assert getattr(HeadCheckpoint.load(folder, config), fault) == getattr(sound, fault)


def test_the_bundled_head_is_wired_as_its_files_say() -> None:
    ran = CliRunner().invoke(app, ["check", "head", str(HEAD), "-n", "32", "--json"])
    assert ran.exit_code == 0, ran.output
    rows = [json.loads(line) for line in ran.stdout.splitlines()]
    assert rows[0]["settings"] == {}
    assert rows[0]["step_0_agreement"] > 0.5
    assert len(rows) >= 5


def test_too_short_texts_are_an_error(setting: tuple[Any, torch.Tensor, list[Written]]) -> None:
    config, embedding, texts = setting
    short = [Written(texts[0].tokens[:9], texts[0].features[:9], 5)]
    with pytest.raises(CheckpointError, match="longer than"):
        check_head(HeadCheckpoint.load(HEAD, config), embedding, short)
