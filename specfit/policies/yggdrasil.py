"""Yggdrasil: an equal-growth tree, pruned to the part with the best speed-up.

Source: arXiv 2512.23858. Every level has the same W nodes; of the drafted tree the part of n nodes
is verified that maximises expected tokens over ``T_draft(D) + T_verify(n)``. As time depends on n
alone, the best part of each size is its n most probable nodes, which is what the paper's dynamic
programme finds. The trained depth predictor is left out: the depth is fixed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specfit.core.policy import Cycle, register_policy
from specfit.core.selection import Selection
from specfit.core.tree import frontier, most_probable
from specfit.policies.evict import Evict


@register_policy("yggdrasil")
@dataclass
class Yggdrasil(Evict):
    """Verify the part of a tree of equal levels that has the best mean speed-up.

    Parameters
    ----------
    depth : int
        Levels to draft (the paper's D).
    top_k : int
        Nodes of a level (the paper's W), and children drawn of each.
    max_nodes : int
        Verified nodes at most, the root included (the paper's W_v).
    paid, calibrated : float, bool
        See `evict`.
    """

    depth: int = 8
    top_k: int = 8
    max_nodes: int = 64

    def select(self, cycle: Cycle) -> Selection:
        """Select the best part of the equal-growth tree."""
        tree = cycle.tree
        path_probs = self._path_probs(cycle)
        in_tree = np.zeros(len(tree), bool)
        in_tree[0] = True
        in_tree[tree.parents[1:]] = True  # the nodes of a level that were expanded are its W
        in_tree[frontier(tree, self.top_k)] = True
        order = most_probable(tree, path_probs)
        return self._best_prefix(cycle, order[in_tree[order]], path_probs)
