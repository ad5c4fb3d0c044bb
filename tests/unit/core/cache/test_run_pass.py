"""A whole pass at once is the same as its waves one by one, for every rule."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from specfit.core.cache import ExpertCache, caches
from specfit.testing.examples import example_geometry

GEOMETRY = example_geometry(num_layers=3, num_experts=20, experts_per_token=4)


def by_waves(cache: ExpertCache, routing: np.ndarray) -> np.ndarray:
    counts = np.zeros((3, cache.num_layers), np.int64)
    for layer in range(cache.num_layers):
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
