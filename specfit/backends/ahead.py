"""Copies made ahead of a pass: planned, then on their way, then there; layer by layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from specfit.backends.device import Event
from specfit.core.cache import LoadPlan


class AheadQueue:
    """Knows which experts of a layer the cache counts as resident that are still to arrive.

    Parameters
    ----------
    num_layers : int
        Layers of the model.
    """

    def __init__(self, num_layers: int) -> None:
        self._planned: list[LoadPlan] = []
        self._flights: list[list[tuple[NDArray[np.int64], Event]]] = [[] for _ in range(num_layers)]

    def plan(self, plans: Sequence[LoadPlan]) -> None:
        """Take in plans whose copies are to be queued, in layer order."""
        self._planned += plans

    def take_planned(self, last_layer: int) -> list[LoadPlan]:
        """Return the plans of the layers up to a given one, in the order given; forget them."""
        due = [plan for plan in self._planned if plan.layer <= last_layer]
        if due:
            self._planned = [plan for plan in self._planned if plan.layer > last_layer]
        return due

    def depart(self, plan: LoadPlan, arrival: Event) -> None:
        """Take note that a plan's copies are queued."""
        self._flights[plan.layer].append((plan.loads, arrival))

    def is_flying(self, layer: int, experts: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which of the experts, int64[u], are on their way, bool[u]."""
        flying = np.zeros(len(experts), bool)
        for loads, _ in self._flights[layer]:
            flying |= np.isin(experts, loads)
        return flying

    def arrivals(self, layer: int) -> list[Event]:
        """Return the arrivals of a layer that nobody waited for, earliest first."""
        return [arrival for _, arrival in self._flights[layer]]

    def land(self, layer: int) -> list[Event]:
        """Return the arrivals of a layer that nobody waited for, earliest first; forget them."""
        arrivals, self._flights[layer] = self.arrivals(layer), []
        return arrivals
