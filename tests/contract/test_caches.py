"""Every shipped cache rule keeps the cache contract."""

from __future__ import annotations

from specfit.core.cache import Lru, NoCache
from specfit.testing.cache_contract import ExpertCacheContract


class TestLru(ExpertCacheContract):
    make = staticmethod(Lru)


class TestNoCache(ExpertCacheContract):
    make = staticmethod(NoCache)
