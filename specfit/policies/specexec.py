"""SpecExec: best-first search for a large budget of the most probable nodes.

Source: arXiv 2406.02532. Made for offloaded dense models, where a pass over a hundred nodes takes
hardly longer than one over a single node. Drafting ends when a level brings no node that belongs
to the budget.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.policy import Cycle, Policy, register_policy
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan, most_probable


@register_policy("specexec")
@dataclass
class SpecExec(Policy):
    """Verify the `max_nodes` most probable nodes that can be found.

    Parameters
    ----------
    max_nodes : int
        Verified nodes, the root included.
    top_k : int
        Children of an expanded node and expanded nodes of a level (the paper: 16 to 32 children, 32
        to 128 expanded nodes).
    depth : int
        Levels to draft at most.
    min_log_prob : float
        Nodes whose log path probability is below it are dropped.
    """

    max_nodes: int = 256
    top_k: int = 16
    depth: int = 32
    min_log_prob: float = -10.0

    def plan(self, cycle: Cycle) -> DraftPlan:
        """Draft at most `depth` levels."""
        return DraftPlan(self.depth, self.top_k, self.max_nodes)

    def after_level(self, cycle: Cycle) -> bool:
        """Draft on while the newest level has a node among the best."""
        best = self._best(cycle)
        return bool((cycle.tree.depths[best] == cycle.levels).any())

    def select(self, cycle: Cycle) -> Selection:
        """Select the best nodes."""
        return Selection.from_nodes(cycle.tree, self._best(cycle))

    def _best(self, cycle: Cycle) -> NDArray[np.intp]:
        path_probs = cycle.tree.path_probs
        likely = int(np.count_nonzero(path_probs >= np.exp(self.min_log_prob)))
        return most_probable(cycle.tree, path_probs)[: min(likely, self.max_nodes)]
