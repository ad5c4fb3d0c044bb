"""Every shipped cache rule keeps the cache contract."""

from __future__ import annotations

from specfit.core.cache import (
    Fifo,
    Lfru,
    Lfu,
    Lru,
    NoCache,
    Pool,
    Random,
    Sieve,
    Spac,
    Static,
    caches,
)
from specfit.testing.cache_contract import ExpertCacheContract
from tests.contract.shipped import shipped


class TestLru(ExpertCacheContract):
    make = staticmethod(Lru)


class TestFifo(ExpertCacheContract):
    make = staticmethod(Fifo)


class TestNoCache(ExpertCacheContract):
    make = staticmethod(NoCache)


class TestLfru(ExpertCacheContract):
    make = staticmethod(Lfru)


class TestLfu(ExpertCacheContract):
    make = staticmethod(Lfu)


class TestRandom(ExpertCacheContract):
    make = staticmethod(Random)


class TestSieve(ExpertCacheContract):
    make = staticmethod(Sieve)


class TestSpac(ExpertCacheContract):
    make = staticmethod(Spac)


class TestStatic(ExpertCacheContract):
    make = staticmethod(Static)


def test_every_shipped_rule_is_held_to_it() -> None:
    """A pool is left out: its slots are those of all layers, which the contract's are not."""
    checked = {Fifo, Lfru, Lfu, Lru, NoCache, Random, Sieve, Spac, Static}
    assert shipped(caches) == checked | {Pool}
