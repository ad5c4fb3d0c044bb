"""Dynamic depth decoding: EAGLE-2's tree, whose depth depends on how sure the beam is.

Source: arXiv 2409.00142. At a few levels ``H = log(sum of the path probabilities of the beam)`` is
compared with a threshold; the beam is the `top_k` nodes that would be expanded next.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specfit.core.policy import Cycle, register_policy
from specfit.core.tree import frontier
from specfit.policies._ranges import check_range
from specfit.policies.eagle3 import Eagle3


@register_policy("ddd")
@dataclass
class Ddd(Eagle3):
    """Verify EAGLE's most probable nodes; stop at a checked level if the beam has become unlikely.

    Parameters
    ----------
    depth, top_k, max_nodes : int
        See `eagle3`.
    threshold : float
        Drafting stops at a checked level where H is below it. Tuned for each model in the paper.
    first_check, check_every : int
        Levels that are checked: the first, and every so many after it.
    """

    depth: int = 11
    threshold: float = -1.0
    first_check: int = 5
    check_every: int = 2

    def __post_init__(self) -> None:
        check_range(self, "check_every", 1)

    def after_level(self, cycle: Cycle) -> bool:
        """Draft on unless this level is checked and its beam is too unlikely."""
        past = cycle.levels - self.first_check
        if past < 0 or past % self.check_every:
            return True
        beam = cycle.tree.path_probs[frontier(cycle.tree, self.top_k)]
        return bool(beam.sum() >= np.exp(self.threshold))
