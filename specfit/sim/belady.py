"""Belady's floor: the fewest copies that any cache rule could have needed for the same passes.

It looks ahead, so it is no rule to decode with. A policy that looks at the cache might have asked
for other experts with another cache: the floor is that of the passes as they were.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core._jit import kernel
from specfit.core.cache.base import needed_by
from specfit.core.decode import DecodeResult
from specfit.core.experts import ModelGeometry

_NEVER = np.iinfo(np.int32).max


def belady_misses(
    passes: Iterable[NDArray[np.int16]], geometry: ModelGeometry, capacity: int
) -> NDArray[np.int64]:
    """Return the fewest misses of each pass and layer, for a cache that starts empty.

    Parameters
    ----------
    passes : iterable of int16[n, L, K]
        Experts of each token of each pass.
    capacity : int
        Slots a layer.

    Returns
    -------
    int64[P, L]
        Misses. Their sum over the passes is the least that `capacity` slots allow where no pass
        needs more experts of a layer than there are slots; otherwise it is a bound.
    """
    needed = np.array([needed_by(routing, geometry) for routing in passes], bool)  # [P, L, E]
    misses = np.zeros(needed.shape[:2], np.int64)
    for layer in range(geometry.num_layers):
        of_layer = np.ascontiguousarray(needed[:, layer])
        _fill_misses(of_layer, _next_uses(of_layer), capacity, misses[:, layer])
    return misses


def belady_floor(results: Sequence[DecodeResult], geometry: ModelGeometry, capacity: int) -> int:
    """Return the fewest experts that the cycles of these requests had to copy.

    The cache starts empty for each request and the prompt fills it; copies for the prompt are not
    counted, as in `Metrics.num_misses`.
    """
    total = 0
    for result in results:
        prompt = _prompt_passes(result)
        cycles = [cycle.outcome.verification.routing for cycle in result.cycles]
        misses = belady_misses([*prompt, *cycles], geometry, capacity)
        total += int(misses[len(prompt) :].sum())
    return total


def _prompt_passes(result: DecodeResult) -> list[NDArray[np.int16]]:
    bounds = np.cumsum((0, *result.prefill.chunks))
    return [result.prefill.routing[a:b] for a, b in pairwise(bounds)]


def _next_uses(needed: NDArray[np.bool_]) -> NDArray[np.int32]:
    """Return the next pass after each that needs each expert, int32[P, E]."""
    next_uses = np.full(needed.shape, _NEVER, np.int32)
    for number in range(len(needed) - 2, -1, -1):
        after = needed[number + 1]
        next_uses[number] = np.where(after, number + 1, next_uses[number + 1])
    return next_uses


@kernel
def _fill_misses(needed: Any, next_uses: Any, capacity: int, misses: Any) -> None:
    """Count the misses of one layer; what is needed again last leaves first.

    Experts needed now stay, unless they are more than the slots.

    ``needed`` is bool[P, E], ``next_uses`` int32[P, E], ``misses`` int64[P].
    """
    num_experts = needed.shape[1]
    is_resident = np.zeros(num_experts, np.bool_)
    for number in range(needed.shape[0]):
        num_resident = 0
        num_needed = 0
        for expert in range(num_experts):
            if needed[number, expert]:
                num_needed += 1
                if not is_resident[expert]:
                    misses[number] += 1
                    is_resident[expert] = True
            num_resident += is_resident[expert]
        spares_needed = num_needed <= capacity
        while num_resident > capacity:
            victim = -1
            for expert in range(num_experts):
                if is_resident[expert] and not (spares_needed and needed[number, expert]):
                    if victim < 0 or next_uses[number, expert] > next_uses[number, victim]:
                        victim = expert
            is_resident[victim] = False
            num_resident -= 1
