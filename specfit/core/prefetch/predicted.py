"""The predicted union of the selection: what its nodes will probably need between them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError
from specfit.core.prefetch.base import Prefetcher, PrefetchView, prefetchers
from specfit.core.tree import first_need_probs


@prefetchers.register("predicted")
@dataclass
class PredictedUnion(Prefetcher):
    """Want each expert that the selection needs with at least a given probability.

    The probability is what the search prices by: ``min(1, sum of r)`` over the selected nodes, r
    being the probability that a node needs the expert and none of its ancestors does. Exact along
    a chain, at most too high where branches may share.

    Parameters
    ----------
    min_prob : float
        Least probability; above 0 and at most 1. A copy that is not needed delays those that are.
    """

    min_prob: float = 0.5

    def __post_init__(self) -> None:
        if not 0 < self.min_prob <= 1:
            raise InvalidInputError(f"min_prob must be above 0 and at most 1; got {self.min_prob}.")

    def wanted(self, view: PrefetchView) -> NDArray[np.float32]:
        """See `Prefetcher.wanted`."""
        assert view.cycle is not None and view.selection is not None, "asked after selecting"
        nodes = view.selection.nodes
        parents = np.searchsorted(nodes, view.cycle.tree.parents[nodes])
        first_needs = first_need_probs(parents, view.cycle.path_needs()[nodes])
        union = np.minimum(first_needs.sum(axis=0), 1.0)
        return np.where(union >= self.min_prob, union, 0).astype(np.float32)
