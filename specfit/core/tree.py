"""The draft tree: candidate continuations of the committed text, root first.

Knows tokens, parents and the drafter's probabilities. Knows nothing of experts or costs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from specfit.core._kernels import (
    fill_ancestors,
    fill_depths,
    fill_frontier,
    fill_products,
    first_fault,
)
from specfit.core.errors import InvalidPlanError, InvalidTreeError

_Array = TypeVar("_Array", bound="NDArray[Any]")
Rows = slice | NDArray[np.integer[Any]] | NDArray[np.bool_]


@dataclass(frozen=True)
class DraftPlan:
    """What the drafter is asked to draw, and how many nodes may be verified of it.

    The drafter draws the EAGLE pool: the `top_k` best children of the root, then `top_k` children
    of each of the `top_k` best nodes of the newest level by path probability. Every candidate stays
    in the draft tree, so the tree has ``1 + top_k + (depth - 1) * top_k**2`` nodes at full depth.

    Parameters
    ----------
    depth : int
        Levels to draw at most; 0 is a plain decoding step.
    top_k : int
        Children of an expanded node, and nodes expanded in a level. 1 draws a chain.
    max_nodes : int
        Upper limit of the *selection*, root included.
    """

    depth: int
    top_k: int
    max_nodes: int

    def __post_init__(self) -> None:
        if self.depth < 0:
            raise InvalidPlanError(f"depth must be 0 or more; got {self.depth}.")
        if self.top_k < 1:
            raise InvalidPlanError(f"top_k must be at least 1; got {self.top_k}.")
        if self.max_nodes < 1:
            raise InvalidPlanError(
                f"max_nodes counts the root and must be at least 1; got {self.max_nodes}."
            )

    @property
    def is_plain(self) -> bool:
        """Whether nothing is to be drafted: the cycle is one step of plain decoding."""
        return self.depth == 0

    @classmethod
    def plain(cls) -> DraftPlan:
        """Return the plan of a plain decoding step."""
        return cls(depth=0, top_k=1, max_nodes=1)


@dataclass(frozen=True)
class DraftLevel:
    """One more level of a draft tree, as the drafter hands it over.

    Parameters
    ----------
    parents : int32[n]
        Index in the tree so far of each new node's parent, non-decreasing.
    tokens : int64[n]
        Target vocabulary ids; siblings differ.
    log_probs : float32[n]
        Log of the drafter's probability of the token given its parent's path.
    ranks : int32[n]
        Rank among its siblings, 0 the most probable.
    entropies : float32[n]
        Entropy in nats of the drafter's distribution at the parent.
    states : float32[n, D], optional
        The drafter's hidden state at the parent, where it keeps them; see `Backend.keep_states`.
    """

    parents: NDArray[np.int32]
    tokens: NDArray[np.int64]
    log_probs: NDArray[np.float32]
    ranks: NDArray[np.int32]
    entropies: NDArray[np.float32]
    states: NDArray[np.float32] | None = None

    def __len__(self) -> int:
        return len(self.tokens)

    def take(self, rows: Rows) -> DraftLevel:
        """Return these nodes of the level alone."""
        return DraftLevel(**_rows(self, rows))


@dataclass(frozen=True, eq=False)
class DraftTree:
    """Candidate continuations of the committed text; node 0, the root, is the last committed token.

    Parameters
    ----------
    tokens : int64[N]
        Target vocabulary ids.
    parents : int32[N]
        ``parents[0] == -1``; every other parent comes before its child.
    log_probs : float32[N]
        Log of the drafter's conditional probability; 0 at the root.
    ranks : int32[N]
        Rank among the siblings, 0 the most probable; 0 at the root.
    entropies : float32[N]
        Entropy in nats of the drafter's distribution at the parent; 0 at the root.
    states : float32[N, D], optional
        The drafter's hidden state at the parent, 0 at the root; see `Backend.keep_states`.

    Raises
    ------
    InvalidTreeError
        Shapes differ, a parent does not come before its child, or a log probability is NaN or
        positive; the message names the index and the value. Or a state is not finite.
    """

    tokens: NDArray[np.int64]
    parents: NDArray[np.int32]
    log_probs: NDArray[np.float32]
    ranks: NDArray[np.int32]
    entropies: NDArray[np.float32]
    states: NDArray[np.float32] | None = None

    def __post_init__(self) -> None:
        _check_tree(self)
        for array in (self.tokens, self.parents, self.log_probs, self.ranks, self.entropies):
            array.setflags(write=False)
        if self.states is not None:
            self.states.setflags(write=False)

    @classmethod
    def root(cls, token: int) -> DraftTree:
        """Return the tree that holds only the last committed token."""
        return cls(
            tokens=np.array([token], np.int64),
            parents=np.array([-1], np.int32),
            log_probs=np.zeros(1, np.float32),
            ranks=np.zeros(1, np.int32),
            entropies=np.zeros(1, np.float32),
        )

    @classmethod
    def from_arrays(
        cls,
        parents: NDArray[np.int32],
        cond_probs: NDArray[np.float64],
        tokens: NDArray[np.int64] | None = None,
    ) -> DraftTree:
        """Build a tree from parents and conditional probabilities; siblings are ranked by index."""
        parents = np.asarray(parents, np.int32)
        n = len(parents)
        with np.errstate(divide="ignore", invalid="ignore"):
            log_probs = np.log(np.asarray(cond_probs, np.float64)).astype(np.float32)
        seen: dict[int, int] = {}
        ranks = np.zeros(n, np.int32)
        for node, parent in enumerate(parents.tolist()):
            ranks[node] = seen.get(parent, 0)
            seen[parent] = seen.get(parent, 0) + 1
        return cls(
            tokens=np.arange(n, dtype=np.int64) if tokens is None else np.asarray(tokens, np.int64),
            parents=parents,
            log_probs=log_probs,
            ranks=ranks,
            entropies=np.zeros(n, np.float32),
        )

    def __len__(self) -> int:
        return len(self.tokens)

    def grow(self, level: DraftLevel) -> DraftTree:
        """Return the tree with one more level; nodes that exist keep their index.

        Only the new nodes are checked.
        """
        tree: DraftTree = object.__new__(DraftTree)
        arrays: dict[str, NDArray[Any]] = {
            "tokens": np.concatenate((self.tokens, level.tokens)),
            "parents": np.concatenate((self.parents, level.parents)),
            "log_probs": np.concatenate((self.log_probs, level.log_probs)),
            "ranks": np.concatenate((self.ranks, level.ranks)),
            "entropies": np.concatenate((self.entropies, level.entropies)),
        }
        if self.states is not None or level.states is not None:
            arrays["states"] = _grown_states(self, level)
        for array in arrays.values():
            array.setflags(write=False)
        tree.__dict__.update(arrays)
        _check_tree(tree, len(self))
        return tree

    def first(self, num_nodes: int) -> DraftTree:
        """Return the tree of the first `num_nodes` nodes, 1 to N of them."""
        if not 1 <= num_nodes <= len(self):
            raise InvalidTreeError(
                f"the first nodes of a tree of {len(self)} are 1 to {len(self)}; got {num_nodes}."
            )
        return DraftTree(**_rows(self, slice(num_nodes)))

    def level(self, nodes: Rows) -> DraftLevel:
        """Return some nodes as they were drafted; their parents keep their numbers."""
        return DraftLevel(**_rows(self, nodes))

    @cached_property
    def depths(self) -> NDArray[np.int32]:
        """Depth of each node, int32[N]; the root has 0."""
        depths = np.zeros(len(self), np.int32)
        fill_depths(self.parents, depths)
        return _read_only(depths)

    @cached_property
    def cond_probs(self) -> NDArray[np.float64]:
        """The drafter's probability of each node given its parent, float64[N]; 1 at the root."""
        return _read_only(np.exp(self.log_probs.astype(np.float64)))

    @cached_property
    def path_probs(self) -> NDArray[np.float64]:
        """Product of the conditional probabilities from the root to each node, float64[N]."""
        return _read_only(path_products(self.parents, self.cond_probs))

    @cached_property
    def _frontiers(self) -> dict[int, NDArray[np.intp]]:
        """What `frontier` found, by top-k: policy and drafter ask for the same."""
        return {}

    @property
    def num_levels(self) -> int:
        """Depth of the deepest node."""
        return int(self.depths.max())

    def children(self, node: int) -> NDArray[np.intp]:
        """Return the indices of `node`'s children, ascending."""
        return np.flatnonzero(self.parents == node)

    def path(self, node: int) -> tuple[int, ...]:
        """Return the nodes from the root to `node`, both included."""
        nodes = [node]
        while self.parents[nodes[-1]] >= 0:
            nodes.append(int(self.parents[nodes[-1]]))
        return tuple(reversed(nodes))

    def on_path(self, target_tokens: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return whether each node lies on the target's own continuation, bool[N].

        Parameters
        ----------
        target_tokens : int64[N]
            The target's own token after each node; -1, which no child has, where it is not known.
        """
        on_path = np.ones(len(self), bool)
        for node, parent in enumerate(self.parents.tolist()[1:], 1):
            on_path[node] = on_path[parent] and self.tokens[node] == target_tokens[parent]
        return on_path

    @cached_property
    def ancestor_mask(self) -> NDArray[np.bool_]:
        """Whether node ``j`` lies on the path from the root to ``i``, both included, bool[N, N]."""
        mask = np.zeros((len(self), len(self)), bool)
        mask[0, 0] = True
        fill_ancestors(self.parents, mask)
        return _read_only(mask)


def frontier(tree: DraftTree, top_k: int) -> NDArray[np.intp]:
    """Return the nodes that a drafter expands next, ascending: the newest level's `top_k` best.

    The best are those of the highest path probability; of equally probable ones, the lower index.
    """
    known = tree._frontiers.get(top_k)
    if known is None:
        best = np.empty(top_k, np.intp)
        count = fill_frontier(tree.depths, tree.path_probs, best)
        known = tree._frontiers[top_k] = _read_only(np.sort(best[:count]))
    return known


def most_probable(tree: DraftTree, path_probs: NDArray[np.float64]) -> NDArray[np.intp]:
    """Return all nodes, most probable path first; equally probable ones by depth, then by index.

    No path is likelier than its beginning, so the first n nodes are a legal selection for every n,
    and of all selections of n nodes the one with the most expected committed tokens. EAGLE takes
    its nodes in this order.

    Parameters
    ----------
    path_probs : float64[N]
        The drafter's own or calibrated; never above the parent's.
    """
    return np.lexsort((tree.depths, -path_probs))


def path_products(
    parents: NDArray[np.int32], cond_probs: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the product of `cond_probs` from the root to each node, float64[N]."""
    products = np.empty(len(parents), np.float64)
    products[0] = cond_probs[0]
    fill_products(parents, cond_probs, products)
    return products


def first_need_probs(
    parents: NDArray[np.int32] | NDArray[np.intp], needs: NDArray[np.float32]
) -> NDArray[np.float64]:
    """Return the probability that a node needs an expert that none of its ancestors needs.

    ``r[v] = p[v] * product over the ancestors u of (1 - p[u])``, float64[N, L, E].

    Parameters
    ----------
    parents : int32[N] or intp[N]
        Of a tree, or of a selection's nodes among themselves; the root's is not looked at.
    needs : float32[N, L, E]
        As `Cycle.path_needs`.
    """
    needed = needs.astype(np.float64)
    spared = np.ones_like(needed)  # probability that no ancestor needs the expert
    for node, parent in enumerate(parents.tolist()):
        if node:
            spared[node] = spared[parent] * (1.0 - needed[parent])
    return needed * spared


def _read_only(array: _Array) -> _Array:
    array.setflags(write=False)
    return array


def _rows(source: DraftLevel | DraftTree, rows: Rows) -> dict[str, Any]:
    """Return the fields, which levels and trees have in common, of some nodes."""
    arrays = ((name, getattr(source, name)) for name in DraftLevel.__match_args__)
    return {name: None if a is None else a[rows] for name, a in arrays}


def _grown_states(tree: DraftTree, level: DraftLevel) -> NDArray[np.float32]:
    """Return the states of the tree's nodes and of the level's."""
    known, new = tree.states, level.states
    if known is None and new is not None and len(tree) == 1:
        known = np.zeros((1, *new.shape[1:]), np.float32)
    if known is None or new is None or known.shape[1:] != new.shape[1:]:
        of_tree, of_level = (None if x is None else list(x.shape) for x in (known, new))
        raise InvalidTreeError(
            f"all drafted nodes must have a state of one width, or none; got states {of_tree} in "
            f"the tree and {of_level} in the new level. Call keep_states before the first level."
        )
    return np.concatenate((known, new))


def _check_tree(tree: DraftTree, first: int = 0) -> None:
    """Raise unless the nodes from `first` on are those of a tree."""
    n = len(tree.tokens)
    fits = len(tree.parents) == len(tree.log_probs) == len(tree.ranks) == len(tree.entropies) == n
    if n == 0 or not fits:
        shapes = [len(a) for a in (tree.parents, tree.log_probs, tree.ranks, tree.entropies)]
        raise InvalidTreeError(
            f"a tree needs at least the root and one value a node in every array; "
            f"got {n} tokens and {shapes} parents, log_probs, ranks, entropies."
        )
    node = first_fault(tree.parents, tree.log_probs, first)
    if node >= 0:
        raise InvalidTreeError(_fault(node, int(tree.parents[node]), float(tree.log_probs[node])))
    if tree.states is not None:
        _check_states(tree.states, n, first)


def _check_states(states: NDArray[np.float32], num_nodes: int, first: int) -> None:
    fits = states.dtype == np.float32 and states.ndim == 2 and len(states) == num_nodes
    if not fits or not np.isfinite(states[first:]).all():
        got = "NaN or infinity" if fits else f"{states.dtype}{list(states.shape)}"
        raise InvalidTreeError(f"states must be finite, float32[{num_nodes}, D]; got {got}.")


def _fault(node: int, parent: int, log_prob: float) -> str:
    if node == 0 and parent != -1:
        return f"parents[0] must be -1, the root's; got {parent}."
    if node == 0:
        return f"log_probs[0] must be 0, the root's; got {log_prob}."
    if not 0 <= parent < node:
        return (
            f"parents[{node}] = {parent}, but a parent must come before its child "
            f"(0 <= parents[{node}] < {node}). Order the nodes root first."
        )
    return f"log_probs[{node}] = {log_prob}, but the log of a probability is a number <= 0."
