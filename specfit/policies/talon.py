"""TALON: spend a node budget level by level on what is near the level's best.

Source: arXiv 2601.07353. The first level keeps `top_k` nodes; of each later one those whose path
probability is at least `ratio` times the level's largest; the tree grows until the budget is
spent, so it becomes deep and narrow where the drafter is sure, shallow and wide where it is not.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.policy import Cycle, Policy, register_policy
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan, DraftTree


@register_policy("talon")
@dataclass
class Talon(Policy):
    """Verify, level by level, the nodes near the level's most probable one, until the budget ends.

    Parameters
    ----------
    max_nodes : int
        Verified nodes, the root included.
    top_k : int
        Nodes of the first level; children of an expanded node and expanded nodes of a level.
    ratio : float
        Share of the level's largest path probability that a node needs (the paper's mu).
    depth : int
        Levels to draft at most.
    """

    max_nodes: int = 60
    top_k: int = 10
    ratio: float = 0.03
    depth: int = 10

    def plan(self, cycle: Cycle) -> DraftPlan:
        """Draft at most `depth` levels."""
        return DraftPlan(self.depth, self.top_k, self.max_nodes)

    def after_level(self, cycle: Cycle) -> bool:
        """Draft on while there is room."""
        return int(self._kept(cycle.tree).sum()) < self.max_nodes

    def select(self, cycle: Cycle) -> Selection:
        """Select what was kept."""
        return Selection(cycle.tree, self._kept(cycle.tree))

    def _kept(self, tree: DraftTree) -> NDArray[np.bool_]:
        kept = np.zeros(len(tree), bool)
        kept[0] = True
        room = self.max_nodes - 1
        for depth in range(1, tree.num_levels + 1):
            level = np.flatnonzero(tree.depths == depth)
            level = level[kept[tree.parents[level]]]
            probs = tree.path_probs[level]
            if depth > 1 and len(level):
                level = level[probs >= self.ratio * probs.max()]
            best = level[np.argsort(-tree.path_probs[level], kind="stable")][:room]
            kept[best] = True
            room -= len(best)
        return kept
