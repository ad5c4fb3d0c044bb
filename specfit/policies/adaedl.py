"""AdaEDL: stop a chain by an entropy bound on acceptance, with a threshold that adapts.

Source: arXiv 2410.18351. Drafting ends when ``1 - sqrt(gamma * H) < lambda``, with H the drafter's
entropy. After each cycle the acceptance rate is averaged with weight `rate_memory` (the paper's
beta 1); below `target_rate` (alpha) lambda rises by `step` (epsilon), else it falls unless the
draft was as long as it may be; the change is smoothed with weight `threshold_memory` (beta 2).
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from specfit.core.policy import Cycle, Outcome, register_policy
from specfit.policies._ranges import check_range
from specfit.policies.chain import Chain


@register_policy("adaedl")
@dataclass
class AdaEDL(Chain):
    """Verify a chain that ends where an entropy bound on acceptance falls below a threshold.

    Parameters
    ----------
    depth : int
        Tokens to draft at most.
    gamma : float
        Ratio of the bound's divergence to the entropy.
    target_rate : float
        Acceptance rate that the threshold steers to.
    step : float
        Change of the threshold in a cycle.
    rate_memory, threshold_memory : float
        Weight of the past in the two running averages.
    first_threshold : float
        Threshold at the start of a request.
    """

    depth: int = 16
    gamma: float = 0.2
    target_rate: float = 0.9
    step: float = 0.01
    rate_memory: float = 0.5
    threshold_memory: float = 0.9
    first_threshold: float = 0.5
    _threshold: float = field(init=False, repr=False, compare=False)
    _rate: float = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "gamma", 0)
        check_range(self, "rate_memory threshold_memory", 0, 1)
        self.reset()

    def after_level(self, cycle: Cycle) -> bool:
        """Draft on while the bound at the newest token is at least the threshold."""
        bound = 1.0 - np.sqrt(self.gamma * cycle.tree.entropies[-1])
        return bool(bound >= self._threshold)

    def observe(self, outcome: Outcome) -> None:
        """Move the threshold towards the acceptance rate that is wanted."""
        drafted = outcome.cycle.levels
        if drafted == 0:
            return
        rate, keep = len(outcome.accepted) / drafted, self.rate_memory
        self._rate = keep * self._rate + (1 - keep) * rate
        change = 0.0
        if self._rate < self.target_rate:
            change = self.step
        elif drafted < outcome.cycle.plan.depth:
            change = -self.step
        self._threshold += (1 - self.threshold_memory) * change

    def reset(self) -> None:
        """Begin with the first threshold, and the wanted rate as the rate so far."""
        self._threshold = self.first_threshold
        self._rate = self.target_rate
