"""No prefetching: every copy waits for the router that asks for it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.prefetch.base import Prefetcher, PrefetchView, prefetchers


@prefetchers.register("none")
@dataclass
class NoPrefetch(Prefetcher):
    """Want nothing."""

    def wanted(self, view: PrefetchView) -> NDArray[np.float32]:
        """See `Prefetcher.wanted`."""
        return view.nothing()
