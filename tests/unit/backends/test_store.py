"""The store: slots hold the host's bytes after any sequence of requests, failures included."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from specfit.backends.cpu import CpuDevice
from specfit.backends.device import Device
from specfit.backends.store import ExpertStore
from specfit.core.cache import make_cache
from specfit.core.errors import BackendError
from specfit.core.experts import ModelGeometry
from tests.unit.backends.models import late_device

GEOMETRY = ModelGeometry(
    num_layers=3, num_experts=16, experts_per_token=4, expert_bytes=4 * 60, vocab_size=10
)


def make_store(spec: str, device: Device) -> ExpertStore:
    bank = torch.arange(3 * 16 * 60).float().view(3, 16, 60)
    return ExpertStore(bank, device, make_cache(spec, GEOMETRY), GEOMETRY)


@pytest.fixture(params=["cpu", "late"])
def device(request: pytest.FixtureRequest) -> Iterator[Device]:
    device = CpuDevice() if request.param == "cpu" else late_device()
    yield device
    device.close()


def needs(rng: np.random.Generator) -> np.ndarray:
    return np.sort(rng.choice(16, int(rng.integers(1, 17)), replace=False))


@pytest.mark.parametrize("spec", ["none", "lru:4", "lru:7", "lru:16"])
def test_slots_hold_the_hosts_bytes(spec: str, device: Device) -> None:
    store, rng = make_store(spec, device), np.random.default_rng(3)
    for step in range(700):
        layer, experts = step % 3, needs(rng)
        store.begin_pass()
        seen = []
        for wave in store.waves(layer, experts):
            found = store.pools[layer][torch.from_numpy(wave.slots)]
            assert torch.equal(found, store.bank[layer, torch.from_numpy(wave.experts)])
            seen += wave.experts.tolist()
        assert sorted(seen) == experts.tolist()
        assert store.counts.num_hits[layer] + store.counts.num_misses[layer] == len(experts)
        assert store.slot_bytes_are_current()
        store.end_pass()


def test_bytes_moved_are_misses_times_expert_bytes(device: Device) -> None:
    store, rng = make_store("lru:5", device), np.random.default_rng(4)
    misses = 0
    for step in range(60):
        store.begin_pass()
        for _ in store.waves(step % 3, needs(rng)):
            pass
        misses += int(store.counts.num_misses.sum())
    assert device.counters.num_copies == misses
    assert device.counters.num_bytes == misses * GEOMETRY.expert_bytes


def test_a_union_beyond_the_slots_is_fetched_once_each(device: Device) -> None:
    store = make_store("lru:5", device)
    for _ in range(4):
        store.begin_pass()
        seen = [e for wave in store.waves(1, np.arange(14)) for e in wave.experts.tolist()]
        assert sorted(seen) == list(range(14))
        assert store.counts.num_hits[1] + store.counts.num_misses[1] == 14
        assert store.counts.num_hits[1] <= 5
    assert store.counts.num_hits[1] > 0  # no thrash: what was left from the pass before is used


def test_after_a_failed_copy_nothing_is_resident() -> None:
    store = make_store("lru:8", late_device(1))
    list(store.waves(0, np.arange(6)))
    with pytest.raises(BackendError, match="layer 1: a copy of expert weights failed"):
        list(store.waves(1, np.arange(6)))
    assert not store.cache.residency().mask.any()
    list(store.waves(1, np.arange(6)))
    assert store.slot_bytes_are_current()


def test_an_abandoned_layer_leaves_nothing_resident(device: Device) -> None:
    store = make_store("lru:4", device)
    waves = store.waves(0, np.arange(9))
    next(waves)
    waves.close()
    assert not store.cache.residency().mask.any()


def test_stale_slots_are_noticed(device: Device) -> None:
    store = make_store("lru:8", device)
    list(store.waves(0, np.arange(6)))
    store.pools[0][int(store.cache.slot_of(0)[2])] += 1
    assert not store.slot_bytes_are_current()
