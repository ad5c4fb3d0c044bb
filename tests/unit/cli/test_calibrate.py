"""`specfit calibrate` measures the backend that decoding will use, not another one."""

from __future__ import annotations

from typing import Any

import pytest
from typer.testing import CliRunner

import specfit.backends
from specfit.cli.main import app
from specfit.core.errors import BackendError


def test_device_type_drafter_and_packed_experts_reach_the_backend(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given: dict[str, Any] = {}

    def load(model: object, **options: object) -> None:
        given.update(options)
        raise BackendError("seen.")

    monkeypatch.setattr(specfit.backends, "load", load)
    words = "--device cuda:1 --dtype bfloat16 --drafter ngram --packed packed"
    ran = CliRunner().invoke(app, ["calibrate", *words.split()])
    assert ran.exit_code == 2 and "seen." in ran.stderr
    chosen = (given["device"], given["dtype"], given["drafter"], str(given["packed"]))
    assert chosen == ("cuda:1", "bfloat16", "ngram", "packed")
