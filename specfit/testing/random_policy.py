"""A policy that decides by lot: whatever holds under it holds for selections of every kind."""

from __future__ import annotations

from dataclasses import dataclass

from specfit.core.policy import Cycle, Policy
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan


@dataclass
class RandomPolicy(Policy):
    """Draws the plan, the moment to stop, and a legal selection from the cycle's generator.

    Parameters
    ----------
    max_depth, max_top_k : int
        Largest plan that is drawn.
    """

    max_depth: int = 5
    max_top_k: int = 4

    def plan(self, cycle: Cycle) -> DraftPlan:
        """Draw a plan; a plain step is among them."""
        depth = int(cycle.rng.integers(0, self.max_depth + 1))
        return DraftPlan(depth, int(cycle.rng.integers(1, self.max_top_k + 1)), max_nodes=1024)

    def after_level(self, cycle: Cycle) -> bool:
        """Go on in three of four cases."""
        return bool(cycle.rng.random() < 0.75)

    def select(self, cycle: Cycle) -> Selection:
        """Keep each node whose parent is kept with a probability that is drawn once a cycle."""
        kept = cycle.rng.random(len(cycle.tree)) < cycle.rng.random()
        mask = kept | (cycle.tree.parents < 0)
        for node, parent in enumerate(cycle.tree.parents.tolist()):
            mask[node] &= parent < 0 or mask[parent]
        return Selection(cycle.tree, mask)
