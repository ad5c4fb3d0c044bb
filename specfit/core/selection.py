"""A selection: the nodes of a draft tree that one pass of the target verifies."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from specfit.core._kernels import first_orphan
from specfit.core.errors import InvalidSelectionError
from specfit.core.tree import DraftTree


@dataclass(frozen=True)
class Prediction:
    """What a policy expects of its selection, to be held against what came of it.

    Parameters
    ----------
    committed : float
        Expected committed tokens.
    misses : float
        Expected experts to copy.
    cycle_s : float
        Expected seconds of the cycle.
    """

    committed: float
    misses: float
    cycle_s: float


@dataclass(frozen=True, eq=False)
class Selection:
    """The nodes sent to the target: contains the root and, with each node, its parent.

    Parameters
    ----------
    tree : DraftTree
        The tree that the nodes belong to.
    mask : bool[N]
        Whether each node is selected.
    prediction : Prediction, optional
        What the policy expects of it, if it says so.

    Raises
    ------
    InvalidSelectionError
        The mask has another length, lacks the root, or holds a node without its parent.
    """

    tree: DraftTree
    mask: NDArray[np.bool_]
    prediction: Prediction | None = None

    def __post_init__(self) -> None:
        if self.mask.shape != (len(self.tree),) or self.mask.dtype != np.bool_:
            raise InvalidSelectionError(
                f"a selection is one bool for each of the {len(self.tree)} nodes; "
                f"got {self.mask.dtype} {list(self.mask.shape)}."
            )
        if not self.mask[0]:
            raise InvalidSelectionError("a selection must contain the root (mask[0]).")
        node = first_orphan(self.tree.parents, self.mask)
        if node >= 0:
            raise InvalidSelectionError(
                f"node {node} is selected without its parent {self.tree.parents[node]}. "
                f"Select the parent too, or drop the node."
            )
        self.mask.setflags(write=False)

    @classmethod
    def from_nodes(
        cls, tree: DraftTree, nodes: NDArray[np.intp] | tuple[int, ...] | list[int]
    ) -> Selection:
        """Return the selection of exactly these nodes."""
        chosen = np.asarray(nodes, np.intp)
        outside = (chosen < 0) | (chosen >= len(tree))
        if outside.any():
            raise InvalidSelectionError(
                f"nodes of this tree are 0 to {len(tree) - 1}; got {chosen[outside][0]}."
            )
        mask = np.zeros(len(tree), bool)
        mask[chosen] = True
        return cls(tree, mask)

    @classmethod
    def root_only(cls, tree: DraftTree) -> Selection:
        """Return the selection of a plain decoding step."""
        return cls.from_nodes(tree, (0,))

    @cached_property
    def nodes(self) -> NDArray[np.intp]:
        """The selected nodes, ascending (so parents precede children)."""
        return np.flatnonzero(self.mask)

    def __len__(self) -> int:
        return len(self.nodes)

    def expected_committed(self, path_probs: NDArray[np.float64]) -> float:
        """Return the expected committed tokens of a cycle that verifies this selection.

        The sum of the path probabilities over the selection, **root included**: the root's 1 is the
        bonus or recovered token that every cycle commits.

        Parameters
        ----------
        path_probs : float64[N]
            Probability that the whole path from the root to each node is accepted.
        """
        return float(path_probs[self.mask].sum())
