"""Sequoia: one static tree, found by dynamic programming from acceptance by sibling rank.

Source: arXiv 2402.12374. With p[b] the probability that the b-th child is the target's token, the
best tree of m nodes and at most l levels whose root has b children commits

    T(m, l, b) = max over 1 <= y < m of  T(y, l, b - 1) + p[b] * max over b' of T(m - y, l - 1, b')

expected tokens, with T(1, l, 0) = 1. Size and depth are those of the least time a token,
``(T_draft(l) + T_verify(m)) / T(m, l)``.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from specfit.core.policy import Cycle, Policy, register_policy
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan, DraftTree
from specfit.policies._ranges import check_range
from specfit.policies.mean_pass import mean_pass_s


@dataclass(frozen=True)
class Topology:
    """A tree without tokens: each node's parent, and its rank among its siblings."""

    parents: tuple[int, ...]
    ranks: tuple[int, ...]

    @property
    def depth(self) -> int:
        """Levels below the root."""
        depths = [0]
        for parent in self.parents[1:]:
            depths.append(depths[parent] + 1)
        return max(depths)

    def nodes_in(self, tree: DraftTree) -> list[int]:
        """Return the nodes of a draft tree that lie on the topology, as far as it was drawn."""
        pairs = zip(tree.parents.tolist(), tree.ranks.tolist(), strict=True)
        drawn = {pair: node for node, pair in enumerate(pairs)}
        found = {0: 0}
        for place in range(1, len(self.parents)):
            parent = found.get(self.parents[place], -1)
            node = drawn.get((parent, self.ranks[place])) if parent >= 0 else None
            if node is not None:
                found[place] = node
        return sorted(found.values())


class TreeTable:
    """The best tree of every size and depth for acceptance probabilities by sibling rank.

    Parameters
    ----------
    rank_probs : float64[B]
        Probability that the child of each rank is the target's token.
    max_nodes, depth : int
        Largest size, root included, and most levels below the root.

    Attributes
    ----------
    committed : float64[max_nodes + 1, depth + 1]
        Expected committed tokens of the best tree of exactly m nodes and at most l levels; ``-inf``
        where there is none.
    """

    def __init__(self, rank_probs: NDArray[np.float64], max_nodes: int, depth: int) -> None:
        ways = len(rank_probs)
        shape = (max_nodes + 1, depth + 1, ways + 1)
        self._value = np.full(shape, -np.inf)
        self._split = np.zeros(shape, np.intp)
        self._value[1, :, 0] = 1.0
        self.committed = np.full(shape[:2], -np.inf)
        self.committed[1] = 1.0
        for level in range(1, depth + 1):
            for m in range(2, max_nodes + 1):
                for b in range(1, ways + 1):
                    below = self.committed[m - 1 : 0 : -1, level - 1]  # sizes m - y for y = 1..
                    total = self._value[1:m, level, b - 1] + rank_probs[b - 1] * below
                    self._split[m, level, b] = int(np.argmax(total)) + 1
                    self._value[m, level, b] = total.max()
                self.committed[m, level] = self._value[m, level].max()

    def topology(self, num_nodes: int, depth: int) -> Topology:
        """Return the best tree of this size and depth."""
        parents, ranks = [-1], [0]

        def grow(root: int, size: int, level: int) -> None:
            children = int(np.argmax(self._value[size, level]))
            for b in range(children, 0, -1):
                kept = int(self._split[size, level, b])
                parents.append(root)
                ranks.append(b - 1)
                grow(len(parents) - 1, size - kept, level - 1)
                size = kept

        grow(0, num_nodes, depth)
        return Topology(tuple(parents), tuple(ranks))


@register_policy("sequoia")
@dataclass
class Sequoia(Policy):
    """Verify a static tree, the best on average for this drafter and this machine.

    Parameters
    ----------
    max_nodes : int
        Verified nodes at most, the root included.
    depth : int
        Levels at most.
    top_k : int
        Children of a node at most; the drafter expands so many nodes of a level.
    paid : float
        Part of the experts of independent routing that passes were seen to pay; see `mean_pass_s`.
    """

    max_nodes: int = 64
    depth: int = 8
    top_k: int = 8
    paid: float = 1.0
    _table: TreeTable | None = field(default=None, init=False, repr=False, compare=False)
    _chosen: Topology = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_range(self, "max_nodes top_k", 1)
        check_range(self, "depth paid", 0)

    def plan(self, cycle: Cycle) -> DraftPlan:
        """Draft as deep as the tree of the least time a token is."""
        if self._table is None:
            self._table = TreeTable(rank_probs(cycle, self.top_k), self.max_nodes, self.depth)
            self._chosen = self._table.topology(*self._best_size(cycle))
        depth = self._chosen.depth
        return DraftPlan(depth, self.top_k, self.max_nodes) if depth else DraftPlan.plain()

    def select(self, cycle: Cycle) -> Selection:
        """Select the nodes that lie on the tree."""
        return Selection.from_nodes(cycle.tree, self._chosen.nodes_in(cycle.tree))

    def reset(self) -> None:
        """Choose anew in the first cycle of the next request."""
        self._table = None

    def _best_size(self, cycle: Cycle) -> tuple[int, int]:
        assert self._table is not None, "made before it is asked"
        pass_s = mean_pass_s(cycle, self.max_nodes, self.paid)[1:, None]
        draft_s = cycle.terms.draft_s[None, : self.depth + 1]
        rates = self._table.committed[1 : len(pass_s) + 1] / (pass_s + draft_s)
        size, level = np.unravel_index(int(np.argmax(rates)), rates.shape)
        return int(size) + 1, int(level)


def rank_probs(cycle: Cycle, top_k: int) -> NDArray[np.float64]:
    """Return the probability that the child of each rank is the target's token, float64[top_k]."""
    any_of = [cycle.acceptance.continuation(1, k) for k in range(1, top_k + 1)]
    return np.maximum(np.diff(any_of, prepend=0.0), 0.0)
