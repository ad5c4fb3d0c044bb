"""S2-MoE's expansion: grow the tree while a node's tokens are worth its new experts at plain speed.

Source: arXiv 2608.15018 equations 2 and 3. With p the path probability, T_AR the time of a plain
step and T_exp that of copying an expert, node i is worth

    U_i = p_i * T_AR / (|experts of i that nothing selected needs| * T_exp + C_draft)

and nodes are admitted, best first, while U >= 1; admitted nodes are expanded. This is the lossless
half of the paper; its gating of the target's routing is not, and is left out. Residency is not
looked at, or, as in the paper's build for a desktop GPU, a list of residents is fixed in advance
and the draft is a chain.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from specfit.core.policy import Cycle, Policy, register_policy
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan
from specfit.policies._ranges import check_range
from specfit.policies.expert_sets import expert_sets
from specfit.policies.mean_pass import dearest_expert_s, mean_pass_s


@register_policy("s2-moe")
@dataclass
class S2MoE(Policy):
    """Verify the nodes whose tokens are worth their new experts; blind to what is resident.

    Parameters
    ----------
    depth, top_k, max_nodes : int
        Levels to draft at most; children of an expanded node and expanded nodes of a level;
        verified nodes at most, the root included.
    expert_scale : float
        Factor on the time of copying an expert. The paper fits that time to its machine; here it is
        the price of the dearest expert times this.
    calibrated : bool
        Whether acceptance is calibrated; the paper takes the drafter's own probabilities.
    """

    depth: int = 16
    top_k: int = 4
    max_nodes: int = 512
    expert_scale: float = 1.0
    calibrated: bool = False

    def __post_init__(self) -> None:
        check_range(self, "expert_scale", 0)

    def plan(self, cycle: Cycle) -> DraftPlan:
        """Draft at most `depth` levels."""
        return DraftPlan(self.depth, self.top_k, self.max_nodes)

    def after_level(self, cycle: Cycle) -> bool:
        """Draft on if a node of the newest level was admitted, and there is room."""
        admitted = self._admitted(cycle)
        newest = admitted & (cycle.tree.depths == cycle.levels)
        return bool(newest.any()) and int(admitted.sum()) < self.max_nodes

    def select(self, cycle: Cycle) -> Selection:
        """Select what was admitted."""
        return Selection(cycle.tree, self._admitted(cycle))

    def _known(self, cycle: Cycle) -> NDArray[np.bool_]:
        """Return the experts that are taken to cost nothing, bool[L, E]."""
        return np.zeros(cycle.terms.weight_s.shape, bool)

    def _admitted(self, cycle: Cycle) -> NDArray[np.bool_]:
        tree, terms = cycle.tree, cycle.terms
        path_probs = cycle.path_probs if self.calibrated else tree.path_probs
        plain_s = float(mean_pass_s(cycle, 1, paid=1.0)[1])
        expert_s = self.expert_scale * dearest_expert_s(terms)
        level_s = np.diff(terms.draft_s[: tree.num_levels + 1]) / self.top_k
        sets = expert_sets(cycle)
        needed = sets[0] | self._known(cycle)
        admitted = np.zeros(len(tree), bool)
        admitted[0] = True
        for depth in range(1, tree.num_levels + 1):
            level = tree.depths == depth
            level[1:] &= admitted[tree.parents[1:]]
            candidates = np.flatnonzero(level)
            while len(candidates) and admitted.sum() < self.max_nodes:
                new = np.count_nonzero(sets[candidates] & ~needed, axis=(1, 2))
                cost_s = np.maximum(new * expert_s + level_s[depth - 1], 1e-30)
                worth = path_probs[candidates] * plain_s / cost_s
                best = int(np.argmax(worth))
                if worth[best] < 1.0:
                    break
                admitted[candidates[best]] = True
                needed |= sets[candidates[best]]
                candidates = np.delete(candidates, best)
        return admitted


@register_policy("s2-moe-static")
@dataclass
class S2MoEStatic(S2MoE):
    """Verify a chain while its tokens are worth their new experts; a fixed list costs nothing.

    Parameters
    ----------
    depth, max_nodes, expert_scale, calibrated : int, int, float, bool
        See `s2-moe`.
    top_k : int
        1, a chain.
    """

    top_k: int = 1
    _residents: NDArray[np.bool_] | None = field(
        default=None, init=False, repr=False, compare=False
    )

    def plan(self, cycle: Cycle) -> DraftPlan:
        """Fix the list in the first cycle: what the prompt left on the device."""
        if self._residents is None:
            self._residents = cycle.residency.mask.copy()
        return super().plan(cycle)

    def reset(self) -> None:
        """Forget the list."""
        self._residents = None

    def _known(self, cycle: Cycle) -> NDArray[np.bool_]:
        assert self._residents is not None, "a cycle begins with its plan"
        return self._residents
