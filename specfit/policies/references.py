"""References for the simulator: the best selection of each cycle, with the truth known beforehand.

They are no bounds on a run: an expert fetched now may serve the next cycle, and a rule that takes
less now may win over the text. Only a simulator can run them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from specfit.core.backend import Foresight
from specfit.core.policy import Cycle, Policy, register_policy
from specfit.core.search import LevelSearch, RoutingPricer
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan, path_products


@register_policy("reference-experts")
@dataclass
class ReferenceExperts(Policy):
    """Verify the best subtree at the best depth of each cycle, knowing the true experts.

    Parameters
    ----------
    depth, top_k, max_nodes : int
        Levels to draft at most; children of an expanded node and expanded nodes of a level;
        verified nodes at most, the root included.
    """

    is_reference = True

    depth: int = 5
    top_k: int = 2
    max_nodes: int = 64
    _mask: NDArray[np.bool_] = field(init=False, repr=False, compare=False)

    def plan(self, cycle: Cycle) -> DraftPlan:
        """Search the whole tree at every depth; draft as deep as the best selection asks for."""
        depth = min(self.depth, cycle.max_depth)
        ahead = cycle.foresee(DraftPlan(depth, self.top_k, self.max_nodes))
        search = LevelSearch(RoutingPricer())
        search.start(cycle.terms, max_nodes=self.max_nodes)
        path_probs, depths = self._path_probs(cycle, ahead), ahead.tree.depths
        ends = np.searchsorted(depths, np.arange(ahead.tree.num_levels + 1), side="right")
        best_rate, best_level = -1.0, 0
        for level, (first, end) in enumerate(zip((0, *ends), ends, strict=False)):
            parents = ahead.tree.parents[:end]
            search.add_level(parents, path_probs[:end], ahead.routing[first:end])
            found = search.best()
            if found.objective > best_rate:
                best_rate, best_level, self._mask = found.objective, level, found.mask
        return DraftPlan(best_level, self.top_k, self.max_nodes)

    def select(self, cycle: Cycle) -> Selection:
        """Select what was found."""
        return Selection(cycle.tree, self._mask)

    def _path_probs(self, cycle: Cycle, ahead: Foresight) -> NDArray[np.float64]:
        return path_products(ahead.tree.parents, cycle.acceptance.calibrate(ahead.tree))


@register_policy("reference-truth")
@dataclass
class ReferenceTruth(ReferenceExperts):
    """Verify the best subtree at the best depth, knowing the true experts and the true text.

    Parameters
    ----------
    depth, top_k, max_nodes : int
        See `reference-experts`.
    """

    def _path_probs(self, cycle: Cycle, ahead: Foresight) -> NDArray[np.float64]:
        return ahead.tree.on_path(ahead.target_tokens).astype(np.float64)
