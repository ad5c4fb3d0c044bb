"""Hardware profiles: there and back through TOML, and what a wrong one is told."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from specfit.core.errors import InvalidInputError
from specfit.core.profile import HardwareProfile
from specfit.testing.examples import example_profile


def test_a_profile_survives_its_file(tmp_path: Path) -> None:
    profile = replace(example_profile(), provenance='said "so"\nin C:\\notes, ümlaut \x01')
    profile.write(tmp_path / "profile.toml")
    assert HardwareProfile.read(tmp_path / "profile.toml") == profile


def test_what_a_profile_may_leave_out_survives_too(tmp_path: Path) -> None:
    profile = replace(example_profile(), verify_table_s=(0.1, 0.25), overlap="resident")
    profile.write(tmp_path / "profile.toml")
    assert HardwareProfile.read(tmp_path / "profile.toml") == profile


def test_a_copy_takes_latency_and_bytes() -> None:
    profile = replace(example_profile(), copy_latency_s=1e-5, expert_bytes=2_000_000)
    assert profile.copy_s == pytest.approx(1e-5 + 2e-3)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "guessed"}, r"kind must be measured, emulated or cited; got 'guessed'"),
        ({"level_s": -1.0}, r"level_s must be 0 or more and finite; got -1.0"),
        ({"level_s": float("nan")}, r"level_s must be 0 or more and finite; got nan"),
        ({"level_s": "fast"}, r"level_s must be float; got 'fast'"),
        ({"name": 3}, r"name must be text; got 3"),
        ({"expert_bytes": 1.5}, r"expert_bytes must be int; got 1.5"),
        ({"overlap": "pas"}, r"overlap must be one of .* Did you mean 'pass'"),
        ({"verify_table_s": (2.0, 1.0)}, r"must not decrease.* got \[2.0, 1.0\]"),
        ({"verify_table_s": (1.0, "x")}, r"verify_table_s\[1\] must be float; got 'x'"),
        ({"verify_table_s": 3.0}, r"must be a list of seconds; got 3.0"),
        ({"h2d_bandwidth_bytes_per_s": 25}, r"25 B/s. .* did you mean 25e9\?"),
    ],
)
def test_a_wrong_value_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        replace(example_profile(), **change)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("level_s = 0.0005", "levl_s = 0.0005", r"unknown key levl_s. Did you mean 'level_s'"),
        ("level_s = 0.0005\n", "", r"missing level_s. Run `specfit calibrate`"),
        ("level_s = 0.0005", "level_s =", r"cannot read the hardware profile"),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "profile.toml"
    example_profile().write(path)
    lines = path.read_text()
    path.write_text(lines.replace("\n" + old, "\n" + new))
    with pytest.raises(InvalidInputError, match=message):
        HardwareProfile.read(path)


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_is_missing_or_no_text_is_refused(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "profile.toml"
    if content:
        path.write_bytes(content)
    with pytest.raises(InvalidInputError, match=r"cannot read the hardware profile .*profile.toml"):
        HardwareProfile.read(path)


def test_a_profile_in_a_results_file_can_be_read_back() -> None:
    measured = replace(example_profile(), verify_table_s=(1e-3, 2e-3))
    assert HardwareProfile(**json.loads(json.dumps(asdict(measured)))) == measured
