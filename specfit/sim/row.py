"""What a sweep keeps of a replayed cell: counters, from which a report derives its figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from specfit.core.cache import ExpertCache, Pool
from specfit.core.decode import DecodeResult
from specfit.core.errors import InvalidInputError
from specfit.core.experts import ModelGeometry
from specfit.sim.belady import belady_floor
from specfit.sim.locality import locality_control
from specfit.sim.metrics import Calibration, acceptance_by_depth, measure, union_by_nodes

FLOORS = ("belady_misses", "ordered_misses", "shuffled_misses", "dealt_misses")
SHUFFLE_KEY = 0
"""Key of the generator that draws the orders of the locality control."""


def row_of(
    results: Sequence[DecodeResult], cache: ExpertCache, geometry: ModelGeometry
) -> dict[str, Any]:
    """Return the counters of a replayed cell, in types that JSON knows.

    Parameters
    ----------
    cache : ExpertCache
        Of the cell's rule and size, for what it would have copied in other orders; its contents
        are lost.

    Raises
    ------
    InvalidInputError
        There was no cycle, so there is nothing to derive a figure from.
    """
    metrics = measure(results, geometry.expert_bytes)
    if not metrics.num_cycles:
        raise InvalidInputError(
            "a sweep needs a prompt with a cycle, and the texts of this trace end with the pass "
            "over the prompt. Record longer ones."
        )
    counters = {k: v for k, v in vars(metrics).items() if isinstance(v, int | float)}
    depths = acceptance_by_depth(results)
    unions = union_by_nodes(results)
    return {
        **counters,
        **_calibration(metrics.calibration),
        "simulated_tokens_per_s": metrics.tokens_per_s,
        "prompt_tokens": [result.num_decoded for result in results],
        "prompt_s": [result.decode_s for result in results],
        "verified_by_depth": [count.num_verified for count in depths],
        "accepted_by_depth": [count.num_accepted for count in depths],
        "union_nodes": [count.num_nodes for count in unions],
        "union_passes": [count.num_passes for count in unions],
        "union_experts": [count.num_experts for count in unions],
        **_floors(results, cache, geometry),
        "cache_slots": slots_of(cache),
        "num_layers": geometry.num_layers,
        "num_experts": geometry.num_experts,
        "experts_per_token": geometry.experts_per_token,
        "expert_bytes": geometry.expert_bytes,
    }


def slots_of(cache: ExpertCache) -> int:
    """Return the slots of a layer, on average; 0 for a cache that keeps nothing."""
    if not cache.keeps_experts:
        return 0
    return cache.capacity // (cache.num_layers if isinstance(cache, Pool) else 1)


def _floors(
    results: Sequence[DecodeResult], cache: ExpertCache, geometry: ModelGeometry
) -> dict[str, int | None]:
    """Return the least copies for the same passes, and those for the same in drawn orders."""
    if not cache.keeps_experts:
        return dict.fromkeys(FLOORS)
    floor = None  # the floor is that of slots which belong to a layer
    if not isinstance(cache, Pool):
        floor = belady_floor(results, geometry, cache.capacity)
    control = locality_control(results, cache, np.random.default_rng(SHUFFLE_KEY))
    return {
        "belady_misses": floor,
        "ordered_misses": control.ordered_misses,
        "shuffled_misses": control.shuffled_misses,
        "dealt_misses": control.dealt_misses,
    }


def _calibration(found: Calibration) -> dict[str, float | None]:
    is_predicted = len(found.cycle_errors) > 0
    return {
        "predicted_committed": found.predicted_committed,
        "realised_committed": found.realised_committed,
        "predicted_misses": found.predicted_misses,
        "realised_misses": found.realised_misses,
        "cycle_error_median": found.cycle_error_median if is_predicted else None,
        "cycle_error_p95": found.cycle_error_p95 if is_predicted else None,
    }
