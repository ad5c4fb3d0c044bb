"""Texts with the drafts that grew on them, and what the target said of the drafted nodes.

What predictors and acceptance models are fitted on and judged by, whoever recorded it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.experts import ModelGeometry
from specfit.core.history import RoutingHistory
from specfit.core.tree import DraftTree


@dataclass(frozen=True, eq=False)
class ObservedDraft:
    """A drafted tree and the target's answers at some of its nodes.

    Parameters
    ----------
    root : int
        Place of the root in its text: the tokens before it are the history.
    tree : DraftTree
        N nodes.
    nodes : intp[n]
        Nodes that the target has run, ascending; the root is the first.
    target_tokens : int64[n]
        The target's own token after each of them.
    routing : int16[n, L, K]
        Experts of each of them.
    """

    root: int
    tree: DraftTree
    nodes: NDArray[np.intp]
    target_tokens: NDArray[np.int64]
    routing: NDArray[np.int16]

    def on_path(self) -> NDArray[np.bool_]:
        """Return whether each drafted node is known to lie on the target's own path, bool[N]."""
        return self.tree.on_path(self._answers())

    def judged(self) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Return the drafted nodes whose parents lie on the true path, and whether each does.

        Of these alone it is known whether the target would accept them.
        """
        targets = self._answers()
        on_path = self.tree.on_path(targets)
        parents = np.maximum(self.tree.parents, 0)
        is_judged = on_path[parents] & (targets[parents] >= 0)
        is_judged[0] = False
        judged = np.flatnonzero(is_judged)
        return judged, on_path[judged]

    def _answers(self) -> NDArray[np.int64]:
        """Return the target's token after each drafted node, int64[N]; -1 where it is not known."""
        answers = np.full(len(self.tree), -1, np.int64)
        answers[self.nodes] = self.target_tokens
        return answers


@dataclass(frozen=True, eq=False)
class ObservedText:
    """A text with its routing and the drafts that grew on it.

    Parameters
    ----------
    tokens : tuple of int
        Committed tokens without the prompt.
    routing : int16[T, L, K]
        Experts of each token that the target has run, prompt included.
    drafts : tuple of ObservedDraft
        In the order of their roots.
    """

    tokens: tuple[int, ...]
    routing: NDArray[np.int16]
    drafts: tuple[ObservedDraft, ...]

    def histories(self, geometry: ModelGeometry) -> Iterator[tuple[ObservedDraft, RoutingHistory]]:
        """Yield each draft with the routing of what was committed before its root.

        The history is one object that grows; take a `snapshot` to keep it.
        """
        history = RoutingHistory(geometry)
        for draft in self.drafts:
            history.append(self.routing[history.num_tokens : draft.root])
            yield draft, history
