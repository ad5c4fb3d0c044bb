"""DraftExpert's stop rule: end a chain at an unsure token that needs many missing experts.

Source: arXiv 2607.24434. Drafting stops before token i if its probability is below a threshold
*and* the missing experts that it alone would bring in are more than a budget. The draft expert
itself, which is trained, belongs to the drafter and not to this rule.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specfit.core.policy import Cycle, register_policy
from specfit.core.selection import Selection
from specfit.policies.chain import Chain
from specfit.policies.expert_sets import expert_sets


@register_policy("draftexpert")
@dataclass
class DraftExpert(Chain):
    """Verify a chain up to the first token that is both unsure and dear in missing experts.

    Parameters
    ----------
    depth : int
        Tokens to draft at most.
    min_prob : float
        Below this conditional probability a token is unsure (the paper's tau; tuned).
    max_missing : int
        Missing experts over all layers that an unsure token may add (the paper's B; tuned).
    """

    depth: int = 4
    min_prob: float = 0.5
    max_missing: int = 8

    def after_level(self, cycle: Cycle) -> bool:
        """Draft on if the newest token passes."""
        return self._num_kept(cycle) == len(cycle.tree)

    def select(self, cycle: Cycle) -> Selection:
        """Select the tokens before the first that fails."""
        return Selection(cycle.tree, np.arange(len(cycle.tree)) < self._num_kept(cycle))

    def _num_kept(self, cycle: Cycle) -> int:
        sets = expert_sets(cycle)
        so_far = np.logical_or.accumulate(sets, axis=0)
        new = sets[1:] & ~so_far[:-1] & ~cycle.residency.mask
        is_dear = np.count_nonzero(new, axis=(1, 2)) > self.max_missing
        fails = is_dear & (cycle.tree.cond_probs[1:] < self.min_prob)
        return 1 + (int(np.argmax(fails)) if fails.any() else len(fails))
