"""`metadata.json`: what is written is read, and everything else is refused by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specfit.core.errors import TraceFormatError
from specfit.core.noise import Sampling
from specfit.core.tree import DraftPlan
from specfit.sim.trace import TraceMetadata, metadata_of
from specfit.testing.examples import example_geometry, example_profile
from specfit.testing.toy import toy_backend


def example() -> TraceMetadata:
    return TraceMetadata(
        kind="positions",
        origin="recorded",
        geometry=example_geometry(),
        plans=(DraftPlan(5, 4, 60), DraftPlan(8, 1, 9)),
        model="toy",
        tokenizer_hash="abc",
        sampling=Sampling(0.7, 50, 0.9, 2**64 - 1, suppress_tokens=(3,), bad_words=((1, 2), (5,))),
        hardware=example_profile(),
        backend={"capacity": 4, "note": "ü"},
        specs={"cache": "lru:25%"},
        num_prompts=3,
    )


def test_what_is_written_is_read(tmp_path: Path) -> None:
    example().write(tmp_path)
    assert TraceMetadata.read(tmp_path) == example()
    assert [p.name for p in tmp_path.iterdir()] == ["metadata.json"]


def test_the_backend_says_what_it_is() -> None:
    metadata = metadata_of(toy_backend(), "run")
    assert metadata.model == "synthetic"
    assert metadata.backend["seconds"] == "simulated"
    assert metadata.geometry == toy_backend().geometry


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format_version": 4}, "newer than 3"),
        ({"format_version": 3}, "missing state_width"),
        ({"state_width": 8}, "unknown key 'state_width'"),
        ({"format_version": 3, "state_width": -1}, "state_width must be 0 to 65536"),
        ({"format_version": 3, "state_width": True}, "state_width must be a count"),
        ({"format_version": 0}, "1 or more"),
        ({"format_version": True}, "1 or more"),
        ({"format_version": "1"}, "1 or more"),
        ({"kind": "cycles"}, "kind must be one of run, positions"),
        ({"kind": 3}, "kind must be text"),
        ({"origin": "dreamt"}, "origin must be"),
        ({"plans": []}, "names the plans"),
        ({"plans": {}}, "plans must be a list"),
        ({"plans": [{"depth": 1}]}, "DraftPlan has the keys"),
        ({"plans": [{"depth": -1, "top_k": 1, "max_nodes": 1}]}, "depth must be 0 or more"),
        ({"plans": [{"depth": 1.5, "top_k": 1, "max_nodes": 1}]}, "DraftPlan.depth must be int"),
        ({"geometry": None}, "must be an object"),
        ({"sampling": {"bad_words": "no"}}, "Sampling.bad_words must be tuple"),
        ({"sampling": {"bad_words": [1]}}, "Sampling.bad_words must be tuple"),
        ({"sampling": {"bad_words": [["a"]]}}, "Sampling.bad_words must be int"),
        ({"sampling": {"suppress_tokens": 3}}, "Sampling.suppress_tokens must be tuple"),
        ({"sampling": {"temperature": -1.0, "top_k": 0, "top_p": 1.0, "noise_key": 0}}, "greedy"),
        ({"hardware": []}, "must be an object"),
        ({"backend": 5}, "must be objects"),
        ({"num_prompts": -1}, "num_prompts must be"),
        ({"num_prompts": 1.5}, "num_prompts must be"),
        ({"models": "x"}, "unknown key 'models'. Did you mean 'model'"),
    ],
)
def test_a_wrong_value_is_refused_by_name(
    tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    example().write(tmp_path)
    path = tmp_path / "metadata.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(TraceFormatError, match=message) as caught:
        TraceMetadata.read(tmp_path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("size", [0, 2**40])
def test_a_geometry_beyond_all_models_is_refused(tmp_path: Path, size: int) -> None:
    example().write(tmp_path)
    path = tmp_path / "metadata.json"
    table = json.loads(path.read_text())
    table["geometry"]["num_experts"] = size
    path.write_text(json.dumps(table))
    with pytest.raises(TraceFormatError, match="num_experts must be 1 to"):
        TraceMetadata.read(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "no JSON"),
        (b"[]", "one JSON object"),
        (b"\xff\xfe", "cannot be read"),
        (b"[" * 200_000, "no JSON"),
        (b"1" * (5 * 2**20), "at most"),
    ],
)
def test_a_file_that_is_no_metadata_is_refused(
    tmp_path: Path, content: bytes, message: str
) -> None:
    (tmp_path / "metadata.json").write_bytes(content)
    with pytest.raises(TraceFormatError, match=message):
        TraceMetadata.read(tmp_path)


def test_a_number_that_json_lacks_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match=r"finite numbers"):
        replace(example(), backend={"bandwidth": float("inf")}).write(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_without_metadata_is_no_trace(tmp_path: Path) -> None:
    with pytest.raises(TraceFormatError, match="Is this a trace"):
        TraceMetadata.read(tmp_path / "missing")
