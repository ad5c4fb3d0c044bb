"""EVICT: of EAGLE's tree verify the prefix with the most expected tokens per second.

Source: arXiv 2605.00342. With nodes in order of path probability and C(k) the mean time of a whole
cycle that verifies k of them, ``k* = argmax (sum of the k largest path probabilities) / C(k)``.
C is an average over contexts: neither which experts nor which are resident is looked at.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.policy import Cycle, Policy, register_policy
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan, most_probable
from specfit.policies._ranges import check_range
from specfit.policies.mean_pass import mean_pass_s


@register_policy("evict")
@dataclass
class Evict(Policy):
    """Verify the most probable nodes, as many as the mean time of a cycle makes worth while.

    Parameters
    ----------
    depth : int
        Levels to draft; all of them are always drafted.
    top_k : int
        Children of an expanded node and expanded nodes of a level.
    max_nodes : int
        Verified nodes at most, the root included.
    paid : float
        Part of the experts of independent routing that cycles were seen to pay; see `mean_pass_s`.
    calibrated : bool
        Whether acceptance is calibrated; the paper takes the drafter's own probabilities.
    """

    depth: int = 4
    top_k: int = 8
    max_nodes: int = 32
    paid: float = 1.0
    calibrated: bool = False

    def __post_init__(self) -> None:
        check_range(self, "paid", 0)

    def plan(self, cycle: Cycle) -> DraftPlan:
        """Draft the whole pool."""
        return DraftPlan(self.depth, self.top_k, self.max_nodes)

    def select(self, cycle: Cycle) -> Selection:
        """Select the prefix of the highest ratio, the shorter of equal ones."""
        path_probs = self._path_probs(cycle)
        return self._best_prefix(cycle, most_probable(cycle.tree, path_probs), path_probs)

    def _path_probs(self, cycle: Cycle) -> NDArray[np.float64]:
        return cycle.path_probs if self.calibrated else cycle.tree.path_probs

    def _best_prefix(
        self, cycle: Cycle, order: NDArray[np.intp], path_probs: NDArray[np.float64]
    ) -> Selection:
        order = order[: self.max_nodes]
        seconds = mean_pass_s(cycle, len(order), self.paid) + cycle.terms.draft_s[cycle.levels]
        ratios = np.cumsum(path_probs[order])[: len(seconds) - 1] / seconds[1:]
        return Selection.from_nodes(cycle.tree, order[: int(np.argmax(ratios)) + 1])
