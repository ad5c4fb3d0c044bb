"""Hard sets of experts, for rules that count experts rather than price probabilities."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specfit.core.policy import Cycle


def expert_sets(cycle: Cycle) -> NDArray[np.bool_]:
    """Return the K experts a layer that each node most probably needs, bool[N, L, E].

    Equally probable experts are taken in the order of their ids.
    """
    probs = cycle.expert_probs.probs
    order = np.argsort(-probs, axis=2, kind="stable")
    sets = np.zeros(probs.shape, bool)
    np.put_along_axis(sets, order[:, :, : cycle.geometry.experts_per_token], True, axis=2)
    return sets


def along_paths(parents: NDArray[np.int32], sets: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the union of the sets on the path from the root to each node, bool[N, L, E]."""
    unions = sets.copy()
    for node, parent in enumerate(parents.tolist()[1:], 1):
        unions[node] |= unions[parent]
    return unions
