"""Rules that hear of tokens, a pool over all layers, and lists of hot experts from files."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from specfit.core.cache import ExpertCache, make_cache
from specfit.core.errors import InvalidInputError
from specfit.testing.examples import example_geometry

GEOMETRY = example_geometry(num_layers=2, num_experts=8, experts_per_token=1)


def serve(cache: ExpertCache, expert: int, num_tokens: int = 1, layer: int = 0) -> list[int]:
    """Take a pass whose tokens all need one expert of a layer; return who left."""
    cache.note_tokens(layer, np.bincount([expert] * num_tokens, minlength=8))
    left = cache.request(layer, np.array([expert])).evictions.tolist()
    cache.end_pass()
    return left


def test_a_state_rises_by_many_tokens_and_falls_by_few() -> None:
    """1 goes to state 1 and back to 0 in two passes without it; then 1 is the older of two 0s."""
    cache = make_cache("spac:2", GEOMETRY)
    serve(cache, 1, 5)
    serve(cache, 2)
    serve(cache, 1, 5)
    serve(cache, 2)  # the states are 0 again
    assert serve(cache, 3) == [1]


def test_an_expert_of_a_high_state_outlives_a_newer_one() -> None:
    cache = make_cache("spac:2", GEOMETRY)
    for num_tokens in (9, 9, 9, 9, 9):
        serve(cache, 1, num_tokens)
    serve(cache, 2, 4)
    assert serve(cache, 3) == [2]


def test_with_single_tokens_states_stay_0_and_the_rule_is_lru() -> None:
    """No state rises without `up_threshold` tokens in a pass."""
    sequence = np.random.default_rng(3).integers(8, size=100).tolist()
    runs = []
    for spec in ("spac:3", "lru:3"):
        cache = make_cache(spec, GEOMETRY)
        runs.append([serve(cache, expert) for expert in sequence])
    assert runs[0] == runs[1]


def test_thresholds_below_1_are_refused() -> None:
    with pytest.raises(InvalidInputError, match="up_threshold must be 1 or more; got 0"):
        make_cache("spac:3,up_threshold=0", GEOMETRY)


def test_the_list_learnt_from_the_first_pass_stays() -> None:
    cache = make_cache("static:2", GEOMETRY)
    cache.note_tokens(0, np.array([0, 9, 5, 0, 0, 0, 0, 0]))
    cache.request(0, np.array([1, 2]))
    cache.end_pass()
    assert serve(cache, 3) == [2]
    assert serve(cache, 4, 50) == [3]
    assert serve(cache, 2) == [4]
    assert serve(cache, 3, 50) == [2]


def test_a_list_from_a_file_decides(tmp_path: Path) -> None:
    path = tmp_path / "hot.json"
    path.write_text(json.dumps([[5, 6], []]), "utf-8")
    cache = make_cache(f"static:3,hot={path}", GEOMETRY)
    for expert in (6, 5, 1):
        serve(cache, expert)
    assert serve(cache, 2) == [1]
    assert serve(cache, 3) == [2]
    cache.reset()
    assert [serve(cache, e) for e in (5, 1, 2, 6)] == [[], [], [], [1]]


@pytest.mark.parametrize(
    "text", ["", "{}", "[[1]]", "[[1, 1], []]", "[[8], []]", '[["1"], []]', "[3, 4]"]
)
def test_a_list_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "hot.json"
    path.write_text(text, "utf-8")
    with pytest.raises(InvalidInputError, match="hot"):
        make_cache(f"static:3,hot={path}", GEOMETRY)


def test_a_pool_lends_the_slots_of_one_layer_to_another() -> None:
    cache = make_cache("pool:2", GEOMETRY)
    assert cache.capacity == 4
    assert [serve(cache, e, layer=0) for e in (0, 1, 2, 3)] == [[]] * 4
    assert serve(cache, 0, layer=1) == [0]
    assert serve(cache, 1, layer=0) == []
    assert cache.residency().mask.sum(axis=1).tolist() == [3, 1]
    cache.prefetch(1, np.array([7]))
    assert cache.residency().mask.sum(axis=1).tolist() == [2, 2]


def test_a_pool_keeps_what_a_layer_needs_now() -> None:
    cache = make_cache("pool:2", GEOMETRY)
    cache.request(0, np.array([0, 1]))
    cache.request(1, np.array([0, 1]))
    plan = cache.request(0, np.array([0, 2, 3]))
    assert plan.evictions.tolist() == [1, 8]  # expert 1 of layer 0, expert 0 of layer 1


def test_a_pool_is_refused_live() -> None:
    with pytest.raises(InvalidInputError, match="simulator only"):
        make_cache("pool:25%", GEOMETRY, live=True)
