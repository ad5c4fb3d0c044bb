"""First in, first out: the expert that was copied in longest ago leaves first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from specfit.core.cache.base import caches
from specfit.core.cache.queue import QueueCache


@caches.register("fifo")
@dataclass(eq=False)
class Fifo(QueueCache):
    """Evict the experts loaded longest ago; of those loaded together the lowest id first."""

    uses_requeue: ClassVar[bool] = False
