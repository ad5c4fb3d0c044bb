"""The prefetcher that knows the routing of a trace: what prefetching could be worth at best."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError
from specfit.core.prefetch import PrefetchView, prefetchers
from specfit.sim.replay import ReplayBackend, TracePrefetcher


@prefetchers.register("oracle")
@dataclass
class OraclePrefetch(TracePrefetcher):
    """Want exactly what the pass will need; simulator only."""

    _backend: ReplayBackend | None = field(default=None, init=False, repr=False, compare=False)

    def connect(self, backend: ReplayBackend) -> None:
        """See `TracePrefetcher.connect`."""
        self._backend = backend

    def wanted(self, view: PrefetchView) -> NDArray[np.float32]:
        """See `Prefetcher.wanted`.

        Raises
        ------
        InvalidInputError
            It is connected to no trace: it is used live.
        """
        if self._backend is None:
            raise InvalidInputError(
                "an oracle knows recorded routing only. Use it with replay, not live."
            )
        assert view.selection is not None, "asked after selecting"
        wanted = view.nothing()
        routing = self._backend.routing_of(view.selection)
        layers = np.arange(view.geometry.num_layers)[:, None]
        wanted[layers, routing.swapaxes(0, 1).reshape(len(layers), -1)] = 1
        return wanted
