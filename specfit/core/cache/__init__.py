"""Expert cache rules, one a file, under one interface."""

from specfit.core.cache.base import ExpertCache, LoadPlan, cache_capacity, caches, make_cache
from specfit.core.cache.fifo import Fifo
from specfit.core.cache.keyed import KeyedCache
from specfit.core.cache.lfru import Lfru
from specfit.core.cache.lfu import Lfu
from specfit.core.cache.lru import Lru
from specfit.core.cache.none import NoCache
from specfit.core.cache.pool import Pool
from specfit.core.cache.random import Random
from specfit.core.cache.sieve import Sieve
from specfit.core.cache.spac import Spac
from specfit.core.cache.static import Static

__all__ = [
    "ExpertCache",
    "Fifo",
    "KeyedCache",
    "Lfru",
    "Lfu",
    "LoadPlan",
    "Lru",
    "NoCache",
    "Pool",
    "Random",
    "Sieve",
    "Spac",
    "Static",
    "cache_capacity",
    "caches",
    "make_cache",
]
