"""The dynamic tree of EAGLE-2 and EAGLE-3: draft a pool, verify its most probable nodes.

Source: arXiv 2406.16858 section 4 and arXiv 2503.01840. The drafter's own probabilities, a fixed
depth, a fixed number of nodes; neither time nor experts are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

from specfit.core.policy import Cycle, Policy, register_policy
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan, most_probable


@register_policy("eagle3")
@dataclass
class Eagle3(Policy):
    """Verify the `max_nodes` most probable nodes of a tree of fixed depth.

    Parameters
    ----------
    depth : int
        Levels to draft.
    top_k : int
        Children of an expanded node and expanded nodes of a level; 1 is a chain.
    max_nodes : int
        Verified nodes, the root included.
    """

    depth: int = 7
    top_k: int = 10
    max_nodes: int = 60

    def plan(self, cycle: Cycle) -> DraftPlan:
        """Draft the whole pool."""
        return DraftPlan(self.depth, self.top_k, self.max_nodes)

    def select(self, cycle: Cycle) -> Selection:
        """Select the most probable nodes; equally probable ones by depth, then by index."""
        order = most_probable(cycle.tree, cycle.tree.path_probs)
        return Selection.from_nodes(cycle.tree, order[: self.max_nodes])
