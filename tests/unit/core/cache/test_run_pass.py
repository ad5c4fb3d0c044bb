"""A whole pass at once is the same as its waves one by one, for every rule."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from specfit.core.cache import ExpertCache, caches, make_cache
from specfit.testing.examples import example_geometry

GEOMETRY = example_geometry(num_layers=3, num_experts=20, experts_per_token=4)


def by_waves(cache: ExpertCache, routing: np.ndarray) -> np.ndarray:
    counts = np.zeros((3, cache.num_layers), np.int64)
    for layer in range(cache.num_layers):
        tokens = np.bincount(routing[:, layer].reshape(-1), minlength=cache.num_experts)
        cache.note_tokens(layer, tokens)
        for wave in cache.waves(layer, np.unique(routing[:, layer]).astype(np.int64)):
            counts[:, layer] += len(wave.hits), len(wave.loads), len(wave.evictions)
    cache.end_pass()
    return counts


@pytest.mark.parametrize("capacity", [4, 7, 13, 20])
@pytest.mark.parametrize("name", caches.names())
def test_a_pass_equals_its_waves(name: str, capacity: int) -> None:
    rng = np.random.default_rng(3)
    whole = caches.get(name)()
    whole.allocate(GEOMETRY, capacity)
    single = copy.deepcopy(whole)
    for _ in range(60):
        num_tokens = int(rng.integers(1, 9))
        routing = rng.random((num_tokens, 3, 20)).argsort(axis=2)[:, :, :4].astype(np.int16)
        np.testing.assert_array_equal(whole.run_pass(routing), by_waves(single, routing))
        for layer in range(3):
            np.testing.assert_array_equal(whole.slot_of(layer), single.slot_of(layer))


@pytest.mark.parametrize("name", caches.names())
def test_a_pass_takes_read_only_routing_and_repeated_experts(name: str) -> None:
    cache = caches.get(name)()
    cache.allocate(GEOMETRY, 4)
    routing = np.array([[[1, 1, 2, 3], [0, 0, 0, 0], [5, 6, 7, 8]]], np.int16)
    routing.setflags(write=False)
    assert cache.run_pass(routing)[1].tolist() == [3, 1, 4]


@pytest.mark.parametrize("name", caches.names())
def test_what_is_prefetched_is_there_and_counts_as_no_miss(name: str) -> None:
    """It goes where the rule has it, over no more slots than there are, the most wanted first."""
    cache = caches.get(name)()
    cache.allocate(GEOMETRY, 6)
    rng = np.random.default_rng(2)
    for _ in range(40):
        routing = rng.random((2, 3, 20)).argsort(axis=2)[:, :, :4].astype(np.int16)
        wanted = rng.permutation(20)[:9]
        before = cache.residency().mask[1]
        plan = cache.prefetch(1, wanted)
        room = min(cache.capacity, len(wanted))
        assert set(plan.hits) | set(plan.loads) == set(wanted[:room].tolist())
        assert before[plan.hits].all() and not before[plan.loads].any()
        after = cache.residency().mask[1]
        assert after[wanted[:room]].all()
        needed = np.unique(routing[:, 1])
        misses = cache.run_pass(routing)[1, 1]
        if name != "pool":  # whose layer 0 takes slots from layer 1
            assert misses == (~after[needed]).sum()


def test_a_prefetch_is_no_use_under_lru() -> None:
    cache = make_cache("lru:4", GEOMETRY)
    cache.request(0, np.array([1, 2, 3]))
    cache.prefetch(0, np.array([9]))
    assert cache.request(0, np.array([5])).evictions.tolist() == [9]


@pytest.mark.parametrize("capacity", [4, 7, 13, 20])
@pytest.mark.parametrize("name", caches.names())
def test_many_passes_equal_one_after_the_other(name: str, capacity: int) -> None:
    """Whatever was there before, and whatever comes after: single passes, waves, a prefetch."""
    rng = np.random.default_rng(7)
    many = caches.get(name)()
    many.allocate(GEOMETRY, capacity)
    single = copy.deepcopy(many)
    for _ in range(6):
        sizes = rng.integers(1, 5, 12)
        routing = rng.random((sizes.sum(), 3, 20)).argsort(axis=2)[:, :, :4].astype(np.int16)
        counts = np.zeros((3, 3), np.int64)
        first = 0
        for size in sizes.tolist():
            counts += single.run_pass(routing[first : first + size])
            first += size
        np.testing.assert_array_equal(many.run_passes(routing, sizes), counts)
        for cache in (many, single):
            cache.prefetch(1, np.array([5, 9, 2]))
            cache.run_pass(routing[:1])
        for layer in range(3):
            np.testing.assert_array_equal(many.slot_of(layer), single.slot_of(layer))
