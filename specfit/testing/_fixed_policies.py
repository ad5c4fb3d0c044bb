"""Policies that decide the same whatever they see: plain decoding, and the first nodes drafted."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specfit.core.policy import Cycle, Policy
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan


class Plain(Policy):
    """Plain decoding."""

    def plan(self, cycle: Cycle) -> DraftPlan:
        """Draft nothing."""
        return DraftPlan.plain()

    def select(self, cycle: Cycle) -> Selection:
        """Verify the root."""
        return Selection.root_only(cycle.tree)


@dataclass
class FirstNodes(Policy):
    """Verifies the first nodes that were drafted, as many as the plan allows.

    Parameters
    ----------
    draft : DraftPlan
        What to draft, in every cycle.
    """

    draft: DraftPlan

    def plan(self, cycle: Cycle) -> DraftPlan:
        """Ask for the one plan."""
        return self.draft

    def select(self, cycle: Cycle) -> Selection:
        """Verify from the root on."""
        return Selection(cycle.tree, np.arange(len(cycle.tree)) < self.draft.max_nodes)
