"""What each node of a drafted tree adds to the time spent on experts, given the nodes chosen."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specfit.core.policy import Cycle
from specfit.core.selection import Selection
from specfit.core.tree import DraftTree


def first_need_probs(tree: DraftTree, probs: NDArray[np.float32]) -> NDArray[np.float64]:
    """Return the probability that a node needs an expert that none of its ancestors needs.

    ``r[v] = p[v] * product over the ancestors u of (1 - p[u])``, float64[N, L, E].

    Parameters
    ----------
    probs : float32[N, L, E]
        Predicted routing.
    """
    needed = probs.astype(np.float64)
    spared = np.ones_like(needed)  # probability that no ancestor needs the expert
    for node, parent in enumerate(tree.parents.tolist()):
        if node:
            spared[node] = spared[parent] * (1.0 - needed[parent])
    return needed * spared


def marginal_expert_s(cycle: Cycle, selection: Selection) -> NDArray[np.float64]:
    """Return the expert seconds of the selection with each node, less those without it; float64[N].

    A node that is not selected takes its missing ancestors along on both sides, so that its own
    share is what is left. Expert (l, e) costs ``weight_s[l, e] * min(1, sum of r)``, the price that
    the search works with; a discount on likely paths is not applied.
    """
    return _marginal(cycle, selection, cycle.terms.weight_s)


def marginal_misses(cycle: Cycle, selection: Selection) -> NDArray[np.float64]:
    """Return the expected copies of the selection with each node, less those without it."""
    return _marginal(cycle, selection, (~cycle.residency.mask).astype(np.float64))


def _marginal(
    cycle: Cycle, selection: Selection, weights: NDArray[np.float64]
) -> NDArray[np.float64]:
    tree = cycle.tree
    needs = first_need_probs(tree, cycle.expert_probs.probs)
    chosen = needs[selection.mask].sum(axis=0)  # [L, E]
    added = np.empty(len(tree))
    for node in range(len(tree)):
        missing = tree.ancestor_mask[node] & ~selection.mask
        together = chosen + needs[missing].sum(axis=0)
        without = np.maximum(together - needs[node], 0.0)
        saved = np.minimum(together, 1.0) - np.minimum(without, 1.0)
        added[node] = float((weights * saved).sum())
    return added
