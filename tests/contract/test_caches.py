"""Every shipped cache rule keeps the cache contract."""

from __future__ import annotations

from specfit.core.cache import Fifo, Lfru, Lfu, Lru, NoCache, Random, Sieve, caches
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


def test_every_shipped_rule_is_held_to_it() -> None:
    assert shipped(caches) == {Fifo, Lfru, Lfu, Lru, NoCache, Random, Sieve}
