"""LRU on cases one can follow by hand."""

from __future__ import annotations

import numpy as np

from specfit.core.cache import ExpertCache, make_cache
from specfit.testing.examples import example_geometry


def lru(capacity: int, num_experts: int = 16) -> ExpertCache:
    return make_cache(f"lru:{capacity}", example_geometry(num_layers=1, num_experts=num_experts))


def request(cache: ExpertCache, *experts: int) -> tuple[list[int], list[int], list[int]]:
    plan = cache.request(0, np.array(experts))
    return plan.hits.tolist(), plan.loads.tolist(), plan.evictions.tolist()


def test_the_oldest_leaves() -> None:
    cache = lru(3)
    assert request(cache, 4) == ([], [4], [])
    assert request(cache, 7, 9) == ([], [7, 9], [])
    assert request(cache, 4) == ([4], [], [])
    assert request(cache, 1) == ([], [1], [7])
    assert request(cache, 2, 3) == ([], [2, 3], [4, 9])


def test_of_equally_old_experts_the_lowest_id_leaves() -> None:
    cache = lru(4)
    request(cache, 2, 5, 8, 11)
    assert request(cache, 0, 1) == ([], [0, 1], [2, 5])


def test_a_needed_expert_stays_though_it_is_the_oldest() -> None:
    cache = lru(2)
    request(cache, 1)
    request(cache, 2)
    assert request(cache, 1, 3) == ([1], [3], [2])


def test_it_declares_that_more_capacity_never_hurts() -> None:
    """Without this the contract would not try rule E6."""
    assert lru(3).is_stack_algorithm
