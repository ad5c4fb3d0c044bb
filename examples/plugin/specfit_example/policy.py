"""A policy that spends a number of expert copies on the most probable nodes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specfit.core.policy import Cycle, Policy
from specfit.core.selection import Selection


@dataclass
class WithinBudget(Policy):
    """Verify the most probable nodes whose expected copies, added up, stay within a budget.

    Parameters
    ----------
    copies : float
        Expert copies that a cycle may cost beside those of its root, over all layers.
    """

    copies: float = 16.0

    def select(self, cycle: Cycle) -> Selection:
        """Take nodes in the order of their path probability until the budget is spent."""
        tree, missing = cycle.tree, ~cycle.residency.mask
        absent = np.where(missing, 1.0 - cycle.expert_probs.probs[0], 1.0)  # [L, E]
        chosen, spent = [0], 0.0
        for node in np.lexsort((tree.depths, -cycle.path_probs)).tolist():
            if node == 0 or int(tree.parents[node]) not in chosen:
                continue
            probs = np.where(missing, cycle.expert_probs.probs[node], 0.0)
            spent += float((absent * probs).sum())
            if spent > self.copies or len(chosen) == cycle.plan.max_nodes:
                break
            chosen.append(node)
            absent = absent * (1.0 - probs)
        return Selection.from_nodes(tree, chosen)
