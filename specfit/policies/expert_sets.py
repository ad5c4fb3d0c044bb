"""Hard sets of experts, for rules that count experts rather than price probabilities."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core._jit import kernel
from specfit.core.policy import Cycle


def expert_sets(cycle: Cycle) -> NDArray[np.bool_]:
    """Return the K experts a layer that each node most probably needs, bool[N, L, E].

    Equally probable experts are taken in the order of their ids.
    """
    probs = cycle.expert_probs.probs
    sets = np.zeros(probs.shape, bool)
    num_experts = probs.shape[2]
    rows = np.array(probs).reshape(-1, num_experts)
    _mark_largest(rows, cycle.geometry.experts_per_token, sets.reshape(-1, num_experts))
    return sets


@kernel
def _mark_largest(rows: Any, count: int, marks: Any) -> None:
    """Mark the `count` largest of each row of float32[R, E] in bool[R, E]; of equals the first."""
    best = np.empty(count, np.int64)
    for r in range(rows.shape[0]):
        found = 0
        for e in range(rows.shape[1]):
            if found == count and rows[r, e] <= rows[r, best[count - 1]]:
                continue
            place = min(found, count - 1)
            while place > 0 and rows[r, e] > rows[r, best[place - 1]]:
                best[place] = best[place - 1]
                place -= 1
            best[place] = e
            found = min(found + 1, count)
        for i in range(found):
            marks[r, best[i]] = True


def along_paths(parents: NDArray[np.int32], sets: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the union of the sets on the path from the root to each node, bool[N, L, E]."""
    unions = sets.copy()
    for node, parent in enumerate(parents.tolist()[1:], 1):
        unions[node] |= unions[parent]
    return unions
