"""MoE-SpeQ's governor: the length of a chain by accepted tokens over predicted cycle time.

Source: arXiv 2511.14102. ``k* = argmax k_accept(k) / T_cycle(k)`` over the allowed lengths, with

    k_accept(k) = sum over i <= k of the product over j <= i of p_j
    T_cycle(k) = T_draft(k) + copies of the missing experts of k + 1 tokens + T_verify(k + 1)

and p_j a running mean of acceptance at each place of the chain. Copies that run while drafting are
left out: nothing is prefetched here.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from specfit.core.policy import Cycle, Outcome, register_policy
from specfit.core.selection import Selection
from specfit.policies._ranges import check_range
from specfit.policies.chain import Chain
from specfit.policies.expert_sets import expert_sets


@register_policy("moe-speq")
@dataclass
class MoESpeQ(Chain):
    """Verify a chain of the length with the best ratio of accepted tokens to cycle time.

    Parameters
    ----------
    depth : int
        Longest chain.
    min_depth : int
        Shortest chain, at least 1.
    memory : float
        Weight of the past in the running means of acceptance.
    first_prob : float
        Acceptance that is assumed at every place before anything was seen.
    """

    depth: int = 8
    min_depth: int = 1
    memory: float = 0.9
    first_prob: float = 0.8
    _probs: NDArray[np.float64] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "min_depth", 1)
        check_range(self, "memory first_prob", 0, 1)
        self.reset()

    def after_level(self, cycle: Cycle) -> bool:
        """Draft on while the newest length is the best so far."""
        return cycle.levels < self.min_depth or self._best_length(cycle) == cycle.levels

    def select(self, cycle: Cycle) -> Selection:
        """Select the best length of what was drafted."""
        return Selection(cycle.tree, np.arange(len(cycle.tree)) <= self._best_length(cycle))

    def observe(self, outcome: Outcome) -> None:
        """Take note of acceptance at each place that the target came to."""
        num_accepted, num_drafted = len(outcome.accepted), len(outcome.selection) - 1
        seen = np.arange(min(num_accepted + 1, num_drafted))
        found = seen < num_accepted
        self._probs[seen] += (1 - self.memory) * (found - self._probs[seen])

    def reset(self) -> None:
        """Forget what was accepted."""
        self._probs = np.full(self.depth, self.first_prob)

    def _best_length(self, cycle: Cycle) -> int:
        """Return the length of the highest ratio from `min_depth` on, the shorter of equal ones."""
        longest = len(cycle.tree) - 1
        shortest = min(self.min_depth, longest)
        terms = cycle.terms
        needed = np.logical_or.accumulate(expert_sets(cycle), axis=0).astype(np.float64)
        pass_s = np.array([terms.pass_s(k + 1, needed[k]) for k in range(longest + 1)])
        cycle_s = terms.draft_s[: longest + 1] + pass_s
        accepted = np.append(0.0, np.cumsum(np.cumprod(self._probs[:longest])))
        ratios = accepted / cycle_s
        return shortest + int(np.argmax(ratios[shortest:]))
