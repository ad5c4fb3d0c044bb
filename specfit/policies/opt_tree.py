"""OPT-Tree: draft while another level adds enough expected tokens, verify the most probable nodes.

Source: arXiv 2406.17276. With W_d the sum of the n largest path probabilities after d levels,
drafting goes on while ``W_d - W_{d-1} > threshold``.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.policy import Cycle, Policy, register_policy
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan, most_probable


@register_policy("opt-tree")
@dataclass
class OptTree(Policy):
    """Verify the `max_nodes` most probable nodes; stop when a level adds too little to their sum.

    Parameters
    ----------
    max_nodes : int
        Verified nodes, the root included.
    threshold : float
        Expected tokens that a level must add; above the time of a draft pass in target passes.
    depth : int
        Levels to draft at most.
    top_k : int
        Children of an expanded node and expanded nodes of a level. The paper expands as many nodes
        as it verifies.
    """

    max_nodes: int = 50
    threshold: float = 0.5
    depth: int = 10
    top_k: int = 10

    def plan(self, cycle: Cycle) -> DraftPlan:
        """Draft at most `depth` levels."""
        return DraftPlan(self.depth, self.top_k, self.max_nodes)

    def after_level(self, cycle: Cycle) -> bool:
        """Draft on if the newest level added more than the threshold."""
        path_probs, depths = cycle.tree.path_probs, cycle.tree.depths
        before = self._most(path_probs[depths < cycle.levels])
        return bool(self._most(path_probs) - before > self.threshold)

    def select(self, cycle: Cycle) -> Selection:
        """Select the most probable nodes."""
        order = most_probable(cycle.tree, cycle.tree.path_probs)
        return Selection.from_nodes(cycle.tree, order[: self.max_nodes])

    def _most(self, path_probs: NDArray[np.float64]) -> float:
        return float(np.sort(path_probs)[::-1][: self.max_nodes].sum())
