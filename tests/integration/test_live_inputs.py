"""Live verbs take named inputs of selection, as replays do; the text stays the target's own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from specfit.cli.main import app
from specfit.data import model_folder

TINY = model_folder("tiny")
GIVEN = ("--prompt", "Question:", "--max-new-tokens", "6", "--profile", "pcie4-x16")


def decode(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["decode", *GIVEN, *arguments])


def test_decode_takes_named_inputs_and_says_so() -> None:
    table = f"token-table:folder={TINY / 'predictor'}"
    own = json.loads(decode("--json").stdout)
    named = decode("--json", "--predictor", table, "--acceptance", "online")
    assert named.exit_code == 0, named.stderr
    row = json.loads(named.stdout)
    assert row["tokens"] == own["tokens"]
    folder = str(TINY / "predictor")
    assert row["predictor"]["params"] == {"folder": folder, "temperature": 0.0}
    assert (own["acceptance"]["name"], row["acceptance"]["name"]) == ("adaptive", "online")


def test_a_named_table_is_read_at_the_temperature_of_the_request() -> None:
    table = f"token-table:folder={TINY / 'predictor'}"
    for spec, expected in ((table, 0.7), (table + ",temperature=0", 0.0)):
        row = json.loads(decode("--json", "--temperature", "0.7", "--predictor", spec).stdout)
        assert row["predictor"]["params"]["temperature"] == expected


def test_a_recording_takes_them_too(tmp_path: Path) -> None:
    arguments = ["record", "-o", str(tmp_path / "trace"), *GIVEN, "--acceptance", "identity"]
    made = CliRunner().invoke(app, arguments)
    assert made.exit_code == 0, made.stderr
    said = json.loads((tmp_path / "trace" / "metadata.json").read_text("utf-8"))
    assert said["specs"]["acceptance"] == {"name": "identity", "params": {}}


@pytest.mark.parametrize(
    ("spec", "words"),
    [("oracle", "looks up the true experts in a trace"), ("orakle", "Did you mean 'oracle'")],
)
def test_what_cannot_predict_live_is_refused(spec: str, words: str) -> None:
    refused = decode("--predictor", spec)
    assert refused.exit_code == 2 and words in refused.stderr


def test_what_was_fitted_on_other_weights_is_refused(tmp_path: Path) -> None:
    for file in (TINY / "predictor").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    for file in tmp_path.glob("*.json"):
        said = json.loads(file.read_text("utf-8"))
        said["constants"]["fitted_on"] = "0" * 64
        file.write_text(json.dumps(said))
    refused = decode("--predictor", f"token-table:folder={tmp_path}")
    assert refused.exit_code == 2 and "was fitted on another model or head" in refused.stderr
