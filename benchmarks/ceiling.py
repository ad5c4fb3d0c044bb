"""What perfect drafting could reach: a drafter that knows the text and takes no time.

A reference, computed and labelled *simulated*: the target's own text is cut into blocks, each
verified in one pass, and the best block length counts. Copies run through the same expert cache
from the routing that plain decoding recorded; seconds come from the machine's profile.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specfit.core.cache import ExpertCache, make_cache
from specfit.core.decode import DecodeResult
from specfit.core.experts import ModelGeometry
from specfit.core.profile import HardwareProfile
from specfit.sim.expert_pass import run_pass, run_prefill

BLOCKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
"""Tokens verified in a pass."""


def perfect_tokens_per_s(
    plain: Sequence[DecodeResult], cache: str, geometry: ModelGeometry, profile: HardwareProfile
) -> float:
    """Return the simulated tokens a second of perfect drafting on plainly decoded texts."""
    num_tokens = sum(result.num_decoded for result in plain)
    return max(
        num_tokens / sum(_seconds(r, block, make_cache(cache, geometry), profile) for r in plain)
        for block in BLOCKS
    )


def _seconds(
    result: DecodeResult, block: int, cache: ExpertCache, profile: HardwareProfile
) -> float:
    run_prefill(cache, result.prefill.routing, result.prefill.chunks)
    routing = np.concatenate([c.outcome.verification.routing[:1] for c in result.cycles])
    total_s = 0.0
    for first in range(0, len(routing), block):
        rows = routing[first : first + block]
        counts = run_pass(cache, rows)
        misses = int(counts.num_misses.sum())
        activated = misses + int(counts.num_hits.sum())
        compute_s = profile.verify_fixed_s + len(rows) * profile.verify_node_s
        experts_s = activated * profile.resident_expert_s
        total_s += compute_s + experts_s + misses * profile.copy_s
    return total_s
