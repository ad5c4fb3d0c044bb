"""The recorded tree that answers a policy's requests in one cycle, from either kind of trace."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from specfit.core._kernels import counts_up
from specfit.core.errors import TraceCoverageError
from specfit.core.tree import DraftLevel, DraftPlan, DraftTree
from specfit.sim.trace.rows import CycleRow, PositionRow


@dataclass(frozen=True, eq=False)
class DrawnTree:
    """A recorded tree, level by level, with the rows of the target's answers.

    Parameters
    ----------
    tree : DraftTree
        Every recorded node, ordered by depth.
    answer_rows : int64[N]
        Row of the target's answer for each node, -1 where there is none.
    is_exhausted : bool
        Whether the drafter had nothing to add after the last level.
    """

    tree: DraftTree
    answer_rows: NDArray[np.int64]
    is_exhausted: bool

    @cached_property
    def _bounds(self) -> list[int]:
        """First node of each level, and the number of nodes."""
        depths = self.tree.depths
        bounds: list[int] = np.searchsorted(depths, np.arange(int(depths[-1]) + 2)).tolist()
        return bounds

    @property
    def num_levels(self) -> int:
        """Recorded levels below the root."""
        return len(self._bounds) - 2

    def levels_of(self, num_nodes: int) -> int:
        """Return the levels of the tree cut after `num_nodes` nodes, a whole number of levels."""
        return bisect_left(self._bounds, num_nodes) - 1

    def num_nodes(self, levels: int) -> int:
        """Return the nodes of the tree cut after `levels` levels."""
        return self._bounds[levels + 1]

    def first_levels(self, levels: int) -> DraftTree:
        """Return the tree cut after `levels` levels."""
        if levels == self.num_levels:
            return self.tree
        return self.tree.first(self.num_nodes(levels))

    def level(self, number: int) -> DraftLevel:
        """Return level `number`, 1 for the root's children."""
        return self.tree.level(slice(self._bounds[number], self._bounds[number + 1]))


EMPTY_LEVEL = DraftLevel(
    np.zeros(0, np.int32),
    np.zeros(0, np.int64),
    np.zeros(0, np.float32),
    np.zeros(0, np.int32),
    np.zeros(0, np.float32),
)


def drawn_in_run(row: CycleRow) -> DrawnTree:
    """Return the tree of a recorded cycle."""
    answer_rows = np.full(len(row.tree), -1, np.int64)
    answer_rows[row.answered] = np.arange(len(row.answered))
    return DrawnTree(row.tree, answer_rows, row.is_exhausted)


def drawn_by_plan(
    row: PositionRow, plans: tuple[DraftPlan, ...], top_k: int, max_depth: int
) -> DrawnTree:
    """Return the tree that the deepest recorded plan with this `top_k` draws at a position.

    Parameters
    ----------
    max_depth : int
        Deepest level that was asked for when the position was recorded.

    Raises
    ------
    TraceCoverageError
        No recorded plan has this `top_k`.
    """
    matching = [i for i, plan in enumerate(plans) if plan.top_k == top_k]
    if not matching:
        recorded = ", ".join(f"depth={p.depth},top_k={p.top_k}" for p in plans)
        raise TraceCoverageError(
            f"the trace holds the plans {recorded}; the policy asked for top_k={top_k}."
        )
    chosen = max(matching, key=lambda i: plans[i].depth)
    nodes, trie = row.plan_nodes[chosen], row.trie
    asked = min(plans[chosen].depth, max_depth)
    is_exhausted = row.plan_levels[chosen] < asked
    if len(plans) == 1 and len(nodes) == len(trie) and counts_up(nodes):
        return DrawnTree(trie, nodes.astype(np.int64), is_exhausted)
    place = np.zeros(len(trie), np.int32)
    place[nodes] = np.arange(len(nodes), dtype=np.int32)
    parents = place[trie.parents[nodes]]
    parents[0] = -1
    drawn = trie.level(nodes)
    tree = DraftTree(
        drawn.tokens, parents, drawn.log_probs, drawn.ranks, drawn.entropies, drawn.states
    )
    return DrawnTree(tree, nodes.astype(np.int64), is_exhausted)


def only_root(tree: DraftTree) -> DrawnTree:
    """Return a tree's root alone, whose answer is row 0."""
    return DrawnTree(DraftTree.root(int(tree.tokens[0])), np.zeros(1, np.int64), False)
