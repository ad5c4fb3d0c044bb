"""Sizes as text, waves, and a rule that chooses wrong victims."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest

from specfit.core.cache import ExpertCache, cache_capacity, make_cache
from specfit.core.cache.base import IdArray
from specfit.core.errors import CapacityError, ContractError, InvalidInputError, UnknownPluginError
from specfit.testing.examples import example_geometry

GEOMETRY = example_geometry(num_layers=2, num_experts=16, experts_per_token=4)


@pytest.mark.parametrize(
    ("size", "capacity"),
    [
        ("16", 16),
        ("25%", 4),
        ("100%", 16),
        ("37.5%", 6),
        (" 50 % ", 8),
        ("16MiB", 8),
        ("0.5GiB", 268),
        ("20000KiB", 10),
        ("0.02GB", 10),
    ],
)
def test_a_size_is_a_number_a_share_or_bytes(size: str, capacity: int) -> None:
    """An expert has 1,000,000 bytes and there are 2 layers."""
    assert cache_capacity(size, GEOMETRY) == capacity


@pytest.mark.parametrize("size", ["", "many", "-3", "3.5", "25 percent", "1e3", "8Gb"])
def test_what_is_no_size_is_told_the_three_forms(size: str) -> None:
    with pytest.raises(InvalidInputError, match=r"number of experts .* share .* bytes"):
        cache_capacity(size, GEOMETRY)


@pytest.mark.parametrize("size", ["0%", "101%"])
def test_a_share_lies_above_0_and_at_most_at_100_percent(size: str) -> None:
    with pytest.raises(InvalidInputError, match=r"above 0% and at most 100%"):
        cache_capacity(size, GEOMETRY)


def test_fewer_slots_than_one_token_needs_are_refused_with_the_numbers() -> None:
    with pytest.raises(CapacityError, match=r"smallest legal size is 4 of 16") as error:
        make_cache("lru:3", GEOMETRY)
    assert (error.value.needed, error.value.capacity) == (4, 3)


def test_more_slots_than_experts_are_not_allocated() -> None:
    assert make_cache("lru:99", GEOMETRY).capacity == 16


def test_no_cache_needs_no_size_and_lru_does() -> None:
    assert make_cache("none", GEOMETRY).capacity == 4
    with pytest.raises(InvalidInputError, match=r"got ''"):
        make_cache("lru", GEOMETRY)


def test_an_unknown_rule_is_told_the_nearest() -> None:
    with pytest.raises(UnknownPluginError, match=r"no cache 'lur'. Did you mean 'lru'"):
        make_cache("lur:25%", GEOMETRY)


@pytest.mark.parametrize("spec", ["lru:4", "none"])
def test_a_union_larger_than_the_cache_comes_in_waves_each_expert_once(spec: str) -> None:
    cache = make_cache(spec, GEOMETRY)
    cache.request(0, np.array([3, 9]))
    waves = list(cache.waves(0, np.array([0, 1, 2, 3, 5, 8, 9, 12, 15])))
    assert [w.hits.tolist() for w in waves] == [[3, 9], [], []]
    assert [w.loads.tolist() for w in waves] == [[0, 1], [2, 5, 8, 12], [15]]


def test_a_full_cache_can_be_all_hits_in_the_first_wave() -> None:
    cache = make_cache("lru:4", GEOMETRY)
    cache.request(0, np.array([0, 1, 2, 3]))
    first, second = cache.waves(0, np.array([0, 1, 2, 3, 4]))
    assert (first.hits.tolist(), first.loads.tolist()) == ([0, 1, 2, 3], [])
    assert (second.loads.tolist(), second.evictions.tolist()) == ([4], [0])


def test_no_experts_are_no_wave() -> None:
    assert list(make_cache("lru:4", GEOMETRY).waves(0, np.array([], np.int64))) == []


def test_no_cache_forgets_after_each_pass() -> None:
    cache = make_cache("none:8", GEOMETRY)
    cache.request(1, np.array([1, 2]))
    assert cache.residency().mask.sum() == 2
    cache.end_pass()
    assert cache.residency().mask.sum() == 0


def test_layers_do_not_share_slots() -> None:
    cache = make_cache("lru:4", GEOMETRY)
    cache.request(0, np.array([0, 1, 2, 3]))
    assert cache.request(1, np.array([4])).evictions.tolist() == []
    assert cache.residency().mask.sum(axis=1).tolist() == [4, 1]


def test_two_budgets_give_two_hit_counts() -> None:
    generator = np.random.default_rng(1)
    needs = [np.unique(generator.integers(0, 16, 4)) for _ in range(50)]
    hits = []
    for size in ("25%", "50%"):
        cache = make_cache(f"lru:{size}", GEOMETRY)
        hits.append(sum(len(cache.request(0, experts).hits) for experts in needs))
    assert hits[0] < hits[1]


@dataclass(eq=False)
class Stubborn(ExpertCache):
    """Chooses what it was told to, right or wrong."""

    victims: tuple[int, ...] = ()

    def choose_victims(self, layer: int, candidates: IdArray, count: int) -> IdArray:
        return np.array(self.victims, np.int64)


@pytest.mark.parametrize("victims", [(), (7,), (0,), (99,), (-1,), (1, 1)])
def test_victims_that_make_no_room_are_refused(victims: tuple[int, ...]) -> None:
    """Too few, not resident, needed now, no expert at all, or one named twice."""
    cache = Stubborn(victims)
    cache.allocate(GEOMETRY, 4)
    cache.request(0, np.array([0, 1, 2, 3]))
    with pytest.raises(ContractError, match=r"E3: choose_victims of Stubborn"):
        cache.request(0, np.array([0, 4, 5]) if victims == (1, 1) else np.array([0, 4]))
