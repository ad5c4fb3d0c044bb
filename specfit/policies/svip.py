"""SVIP: draft a chain until the drafter is too unsure of its last token.

Source: arXiv 2411.18462. By Pinsker's inequality acceptance is at least 1 - sqrt(KL / 2), and the
KL divergence is taken for a constant times the drafter's entropy. The token that fails the test
is kept, as in the published code.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specfit.core.policy import Cycle, register_policy
from specfit.policies._ranges import check_range
from specfit.policies.chain import Chain


@register_policy("svip")
@dataclass
class Svip(Chain):
    """Verify a chain that ends where ``sqrt(factor * entropy) > threshold``.

    Parameters
    ----------
    depth : int
        Tokens to draft at most (40 in the published code, which drafts with a model of its own).
    factor : float
        Half the ratio of KL divergence to entropy.
    threshold : float
        The longest accepted lower bound of rejection, 0 to 1.
    """

    depth: int = 16
    factor: float = 0.15
    threshold: float = 0.3

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "factor", 0)

    def after_level(self, cycle: Cycle) -> bool:
        """Draft on unless the drafter's entropy at the newest token is too high."""
        return bool(np.sqrt(self.factor * cycle.tree.entropies[-1]) <= self.threshold)
