"""EcoSpec: a fixed number of greedy picks by probability over newly needed experts.

Source: arXiv 2607.12696. Repeated gamma times: of all nodes take the one with the largest
``P(v) / (number of experts on its path that nothing selected needs yet + epsilon)``, and with it
its whole path. Experts are counted, not timed, and residency is not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specfit.core.policy import Cycle, Policy, register_policy
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan
from specfit.policies.expert_sets import along_paths, expert_sets


@register_policy("ecospec")
@dataclass
class EcoSpec(Policy):
    """Verify `num_picks` paths of high probability that need few further experts.

    Parameters
    ----------
    num_picks : int
        Nodes picked; their paths come with them (the paper's gamma).
    depth, top_k : int
        Levels to draft, and children of an expanded node and expanded nodes of a level.
    epsilon : float
        Added to the number of experts.
    """

    num_picks: int = 4
    depth: int = 3
    top_k: int = 2
    epsilon: float = 1e-6

    def plan(self, cycle: Cycle) -> DraftPlan:
        """Draft the whole pool."""
        return DraftPlan(self.depth, self.top_k, 1 + self.num_picks * self.depth)

    def select(self, cycle: Cycle) -> Selection:
        """Select path by path."""
        tree = cycle.tree
        sets = expert_sets(cycle)
        needed, on_path = sets[0].copy(), along_paths(tree.parents, sets)
        mask = np.zeros(len(tree), bool)
        mask[0] = True
        for _ in range(min(self.num_picks, len(tree) - 1)):
            if mask.all():
                break
            added = np.count_nonzero(on_path & ~needed, axis=(1, 2))
            scores = np.where(mask, -1.0, tree.path_probs / (added + self.epsilon))
            best = int(np.argmax(scores))
            mask[list(tree.path(best))] = True
            needed |= on_path[best]
        return Selection(tree, mask)
