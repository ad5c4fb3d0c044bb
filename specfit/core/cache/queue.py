"""Rules that are a queue: the first in line leaves, and only a use or a loading moves an expert."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from specfit.core.cache._queue_kernels import serve_passes
from specfit.core.cache.base import IdArray
from specfit.core.cache.keyed import KeyedCache


class QueueCache(KeyedCache):
    """Evicts by the last use, or by the loading; many passes run in one kernel."""

    uses_requeue: ClassVar[bool]
    """Whether a use puts an expert to the end of the queue, and not its loading alone."""

    @property
    def keys(self) -> IdArray:
        """Number of the request that put each expert to the end of the queue."""
        return self._last_used if self.uses_requeue else self._loaded

    def run_passes(self, routing: NDArray[np.int16], sizes: IdArray) -> IdArray:
        """See `ExpertCache.run_passes`."""
        counts = np.zeros((3, self.num_layers), np.int64)
        self._num_requests = serve_passes(
            self._slots,
            self._last_used,
            self._loaded,
            routing,
            sizes,
            self.capacity,
            self._num_requests,
            self.uses_requeue,
            counts,
        )
        return counts
