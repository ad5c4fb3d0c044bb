"""The nodes of a draft tree in order of path probability, which any prefix of keeps closed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specfit.core.tree import DraftTree


def most_probable(tree: DraftTree, path_probs: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return all nodes, most probable path first; equally probable ones by depth, then by index.

    No path is likelier than its beginning, so the first n nodes are a legal selection for every n,
    and of all selections of n nodes the one with the most expected committed tokens.

    Parameters
    ----------
    path_probs : float64[N]
        The drafter's own or calibrated; never above the parent's.
    """
    return np.lexsort((tree.depths, -path_probs))
