"""Plain decoding: one token a pass, nothing drafted. The yardstick of every speed-up."""

from __future__ import annotations

from dataclasses import dataclass

from specfit.core.policy import Cycle, Policy, register_policy
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan


@register_policy("autoregressive")
@dataclass
class Autoregressive(Policy):
    """Verify the root alone."""

    def plan(self, cycle: Cycle) -> DraftPlan:
        """Draft nothing."""
        return DraftPlan.plain()

    def select(self, cycle: Cycle) -> Selection:
        """Select the root."""
        return Selection.root_only(cycle.tree)
