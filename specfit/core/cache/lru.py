"""Least recently used: the expert whose last use lies furthest back leaves first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from specfit.core.cache.base import caches
from specfit.core.cache.queue import QueueCache


@caches.register("lru")
@dataclass(eq=False)
class Lru(QueueCache):
    """Evict the least recently used experts; of equally old ones the lowest id first."""

    is_stack_algorithm: ClassVar[bool] = True
    uses_requeue: ClassVar[bool] = True
