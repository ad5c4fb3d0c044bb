"""The prefetcher interface: what to copy ahead, from what is known before the pass.

A prefetcher only says what it wants. The expert cache makes room as its rule has it, so that what
is resident depends on the sequence of requests alone, live and replayed.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from specfit.core.experts import ModelGeometry
from specfit.core.history import RoutingHistory
from specfit.core.policy import Cycle
from specfit.core.registry import Registry
from specfit.core.selection import Selection


@dataclass(frozen=True)
class PrefetchView:
    """What a prefetcher may look at.

    Parameters
    ----------
    geometry : ModelGeometry
        Shape of the target.
    history : RoutingHistory
        Routing of the committed text.
    cycle : Cycle, optional
        The cycle whose pass comes; absent for one that wants its copies before the drafting.
    selection : Selection, optional
        What the pass will verify; absent likewise.
    """

    geometry: ModelGeometry
    history: RoutingHistory
    cycle: Cycle | None = None
    selection: Selection | None = None

    def nothing(self) -> NDArray[np.float32]:
        """Return the answer that wants nothing, float32[L, E]."""
        return np.zeros((self.geometry.num_layers, self.geometry.num_experts), np.float32)


class Prefetcher(ABC):
    """Chooses experts to copy ahead of a pass. One method to write: `wanted`."""

    before_drafting: ClassVar[bool] = False
    """Whether it is asked when the cycle starts, so that copies run beside the drafting, and not
    once the selection is known."""

    @abstractmethod
    def wanted(self, view: PrefetchView) -> NDArray[np.float32]:
        """Return how much each expert is wanted, float32[L, E]; 0 is not at all.

        Of a layer's experts the most wanted are fetched, as many as there are slots.
        """

    def to_spec(self) -> dict[str, Any]:
        """Return the name and parameters from which an equal prefetcher can be made."""
        return prefetchers.spec_of(self)


prefetchers: Registry[Prefetcher] = Registry("prefetcher", "specfit.prefetchers")
