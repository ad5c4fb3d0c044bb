"""DySpec: spend the budget where the drafter's remaining probability is largest.

Source: arXiv 2410.11744. A place in the tree is worth the probability that decoding comes to it
*before its token is drawn*: the first child of node u is worth P(u); after siblings of conditional
probabilities q it is worth P(u) * (1 - sum of q), what their rejection leaves.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.policy import Cycle, Policy, register_policy
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan, DraftTree


@register_policy("dyspec")
@dataclass
class DySpec(Policy):
    """Verify the `max_nodes` places of the largest worth; expand while one is worth a node.

    Parameters
    ----------
    max_nodes : int
        Verified nodes, the root included. A level is drafted while some node's children would be
        worth ``1 / max_nodes`` (the paper's threshold form).
    depth : int
        Levels to draft at most.
    top_k : int
        Children of an expanded node and expanded nodes of a level.
    """

    max_nodes: int = 64
    depth: int = 10
    top_k: int = 8

    def plan(self, cycle: Cycle) -> DraftPlan:
        """Draft at most `depth` levels."""
        return DraftPlan(self.depth, self.top_k, self.max_nodes)

    def after_level(self, cycle: Cycle) -> bool:
        """Draft on while a first child of the newest level would be worth the threshold."""
        newest = cycle.tree.path_probs[cycle.tree.depths == cycle.levels]
        return bool(newest.max() >= 1.0 / self.max_nodes)

    def select(self, cycle: Cycle) -> Selection:
        """Select the places of the largest worth."""
        order = np.lexsort((cycle.tree.depths, -worth(cycle.tree)))
        return Selection.from_nodes(cycle.tree, order[: self.max_nodes])


def worth(tree: DraftTree) -> NDArray[np.float64]:
    """Return the probability of coming to each place before its token is drawn, float64[N]."""
    values = np.ones(len(tree))
    if len(tree) == 1:
        return values
    order = np.lexsort((tree.ranks, tree.parents))[1:]  # siblings together, the root left out
    parents, conds = tree.parents[order], tree.cond_probs[order]
    is_first = np.append(True, parents[1:] != parents[:-1])
    before = np.cumsum(conds) - conds
    before -= np.maximum.accumulate(np.where(is_first, before, 0.0))
    values[order] = tree.path_probs[parents] * np.clip(1.0 - before, 0.0, 1.0)
    # In exact numbers a child is never worth more than its parent; rounding must not say so.
    for depth in range(1, tree.num_levels + 1):
        nodes = tree.depths == depth
        values[nodes] = np.minimum(values[nodes], values[tree.parents[nodes]])
    return values
