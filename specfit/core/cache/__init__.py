"""Expert cache rules, one a file, under one interface."""

from specfit.core.cache.base import ExpertCache, LoadPlan, cache_capacity, caches, make_cache
from specfit.core.cache.fifo import Fifo
from specfit.core.cache.keyed import KeyedCache
from specfit.core.cache.lru import Lru
from specfit.core.cache.none import NoCache

__all__ = [
    "ExpertCache",
    "Fifo",
    "KeyedCache",
    "LoadPlan",
    "Lru",
    "NoCache",
    "cache_capacity",
    "caches",
    "make_cache",
]
