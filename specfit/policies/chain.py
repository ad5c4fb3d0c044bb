"""Plain speculative decoding: a chain of fixed length, verified whole.

Source: arXiv 2211.17192.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specfit.core.policy import Cycle, Policy, register_policy
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan
from specfit.policies._ranges import check_range


@register_policy("chain")
@dataclass
class Chain(Policy):
    """Verify every token of a drafted chain.

    Parameters
    ----------
    depth : int
        Tokens to draft, at most; policies that stop early derive from this one.
    """

    depth: int = 5

    def __post_init__(self) -> None:
        check_range(self, "depth", 0)

    def plan(self, cycle: Cycle) -> DraftPlan:
        """Draft a chain."""
        if self.depth == 0:
            return DraftPlan.plain()
        return DraftPlan(self.depth, 1, self.depth + 1)

    def select(self, cycle: Cycle) -> Selection:
        """Select all of it."""
        return Selection(cycle.tree, np.ones(len(cycle.tree), bool))
