"""Every shipped cache rule keeps the cache contract."""

from __future__ import annotations

from specfit.core.cache import Fifo, Lfru, Lfu, Lru, NoCache, Random, Sieve
from specfit.testing.cache_contract import ExpertCacheContract


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
