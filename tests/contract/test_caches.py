"""Every shipped cache rule keeps the cache contract."""

from __future__ import annotations

from specfit.core.cache import Fifo, Lru, NoCache
from specfit.testing.cache_contract import ExpertCacheContract


class TestLru(ExpertCacheContract):
    make = staticmethod(Lru)


class TestFifo(ExpertCacheContract):
    make = staticmethod(Fifo)


class TestNoCache(ExpertCacheContract):
    make = staticmethod(NoCache)
