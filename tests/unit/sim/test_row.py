"""The row of a cell: counters that add up, and the controls beside them."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from specfit.core.cache import make_cache
from specfit.core.decode import DecodeResult
from specfit.core.policy import policies
from specfit.sim.locality import count_misses, locality_control
from specfit.sim.metrics import measure, union_by_nodes
from specfit.sim.row import row_of
from specfit.testing.examples import example_geometry
from tests.unit.sim.traces import replayed

GEOMETRY = example_geometry()
TREE = "eagle3:depth=4,top_k=3,max_nodes=12"


def results_of(trace: Path, policy: str = TREE, cache: str = "lru:25%") -> list[DecodeResult]:
    return replayed(trace, policies.make(policy), cache)


@pytest.mark.parametrize("cache", ["lru:25%", "sieve:50%", "pool:25%", "none"])
def test_a_row_adds_up(positions_trace: Path, cache: str) -> None:
    results = results_of(positions_trace, cache=cache)
    metrics = measure(results, GEOMETRY.expert_bytes)
    row = row_of(results, make_cache(cache, GEOMETRY), GEOMETRY)
    assert row == json.loads(json.dumps(row, allow_nan=False))
    assert sum(row["verified_by_depth"]) == metrics.num_verified - metrics.num_cycles
    assert sum(row["accepted_by_depth"]) == metrics.num_accepted
    assert sum(row["prompt_tokens"]) == metrics.num_committed
    assert sum(row["union_passes"]) == metrics.num_cycles
    assert sum(row["union_experts"]) == metrics.num_hits + metrics.num_misses
    nodes = zip(row["union_nodes"], row["union_passes"], strict=True)
    assert sum(count * passes for count, passes in nodes) == metrics.num_verified
    assert row["cache_slots"] == {"lru:25%": 4, "sieve:50%": 8, "pool:25%": 4, "none": 0}[cache]


def test_a_pass_of_one_node_needs_one_tokens_experts(positions_trace: Path) -> None:
    (count,) = union_by_nodes(results_of(positions_trace, "autoregressive"))
    assert count.num_nodes == 1
    assert count.experts_per_pass == GEOMETRY.num_layers * GEOMETRY.experts_per_token


def test_the_control_counts_as_the_replay_does(positions_trace: Path) -> None:
    results = results_of(positions_trace)
    passes = [[c.outcome.verification.routing for c in r.cycles] for r in results]
    cache = make_cache("lru:25%", GEOMETRY)
    assert count_misses(results, passes, cache) == measure(results, 1).num_misses


def test_a_cache_that_holds_everything_does_not_mind_the_order(positions_trace: Path) -> None:
    results = results_of(positions_trace, cache="lru:100%")
    control = locality_control(results, make_cache("lru:100%", GEOMETRY), np.random.default_rng(0))
    assert control.shuffled_misses == control.ordered_misses == measure(results, 1).num_misses


def test_shuffling_takes_locality_away(positions_trace: Path) -> None:
    """Passes that come in runs of equal ones are local; in a drawn order they are not."""
    results = results_of(positions_trace, "autoregressive")[:1]
    cache = make_cache("lru:2", GEOMETRY)
    kinds = [np.full((1, 4, 2), 2 * kind, np.int16) + np.array([0, 1], np.int16) for kind in (0, 1)]
    runs = [kinds[0]] * 50 + [kinds[1]] * 50
    local = count_misses(results, [runs], cache)
    shuffled = [runs[i] for i in np.random.default_rng(0).permutation(100)]
    assert local <= 16
    assert count_misses(results, [shuffled], cache) > 10 * local


def test_dealt_passes_are_those_of_all_texts(positions_trace: Path) -> None:
    """With one text, dealing is shuffling: both controls count the same number of requests."""
    results = results_of(positions_trace)
    cache = make_cache("lru:25%", GEOMETRY)
    drawn = [locality_control(results, cache, np.random.default_rng(0)) for _ in range(2)]
    assert drawn[0] == drawn[1]
    requests = sum(len(r.cycles) for r in results) * 12 * 8
    assert 0 < drawn[0].shuffled_misses < requests
    assert 0 < drawn[0].dealt_misses < requests
