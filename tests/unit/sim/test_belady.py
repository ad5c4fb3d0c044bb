"""The floor is the optimum of an exhaustive search, and no rule goes below it."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from specfit.core.cache import caches
from specfit.core.experts import ModelGeometry
from specfit.sim.belady import belady_floor, belady_misses
from specfit.sim.metrics import measure
from specfit.testing.examples import example_geometry
from tests.unit.sim.traces import replayed

Passes = list[set[int]]


def random_passes(rng: np.random.Generator, num_experts: int, most: int, count: int) -> Passes:
    sizes = rng.integers(1, most + 1, count)
    return [set(rng.choice(num_experts, size, replace=False).tolist()) for size in sizes]


def as_routing(needed: set[int], geometry: ModelGeometry) -> np.ndarray:
    """Return tokens that need these experts in every layer, one each."""
    k = geometry.experts_per_token
    return np.array([[[e] * k] * geometry.num_layers for e in sorted(needed)], np.int16)


def optimum(passes: Passes, capacity: int) -> int:
    """Return the fewest misses over every way to evict, by dynamic programming over contents."""
    best: dict[frozenset[int], int] = {frozenset(): 0}
    for needed in passes:
        after: dict[frozenset[int], int] = {}
        for resident, misses in best.items():
            cost = misses + len(needed - resident)
            idle = resident - needed
            room = capacity - len(needed)
            for kept in combinations(idle, min(room, len(idle))):
                contents = frozenset(needed | set(kept))
                after[contents] = min(after.get(contents, cost), cost)
        best = after
    return min(best.values())


@pytest.mark.parametrize("case", range(30))
def test_the_floor_is_the_optimum(case: int) -> None:
    rng = np.random.default_rng(case)
    capacity = int(rng.integers(2, 5))
    passes = random_passes(rng, 7, capacity, 9)
    geometry = example_geometry(num_layers=1, num_experts=7)
    routing = [as_routing(needed, geometry) for needed in passes]
    assert belady_misses(routing, geometry, capacity).sum() == optimum(passes, capacity)


@pytest.mark.parametrize("most", [1, 5, 12])
@pytest.mark.parametrize("name", caches.names())
def test_no_rule_goes_below_the_floor(name: str, most: int) -> None:
    geometry = example_geometry(num_layers=2, num_experts=14)
    passes = random_passes(np.random.default_rng(most), 14, most, 200)
    routing = [as_routing(needed, geometry) for needed in passes]
    for capacity in (3, 6, 14):
        cache = caches.get(name)()
        cache.allocate(geometry, capacity)
        misses = sum(int(cache.run_pass(tokens)[1].sum()) for tokens in routing)
        floor = int(belady_misses(routing, geometry, capacity).sum())
        assert floor <= misses
        assert floor >= 2 * len(set().union(*passes))


def test_a_case_by_hand() -> None:
    """With two slots, 1 2 3 1 2: 3 takes the place of 2, which is needed last."""
    geometry = example_geometry(num_layers=1, num_experts=4)
    routing = [as_routing({e}, geometry) for e in (1, 2, 3, 1, 2)]
    assert belady_misses(routing, geometry, 2)[:, 0].tolist() == [1, 1, 1, 0, 1]


def test_the_floor_of_a_replay_counts_its_cycles_only(positions_trace: Path) -> None:
    results = replayed(positions_trace, cache_spec="lru:50%")
    geometry = example_geometry()
    copied = measure(results, geometry.expert_bytes).num_misses
    assert 0 < belady_floor(results, geometry, 8) < copied
    assert (
        belady_floor(results, geometry, geometry.num_experts)
        <= measure(
            replayed(positions_trace, cache_spec="lru:100%"), geometry.expert_bytes
        ).num_misses
    )
