"""The search for a cost model without terms: only its monotonicity and its lower bound are used."""

from __future__ import annotations

import heapq
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError
from specfit.core.search.problem import (
    Price,
    SearchResult,
    as_parents,
    check_max_nodes,
    check_price,
    check_tree,
)

Mask = NDArray[np.bool_]


def exact_monotone(
    parents: NDArray[np.int32],
    path_probs: NDArray[np.float64],
    cycle_s: Callable[[Mask], float],
    *,
    lower_bound_s: Callable[[Mask], float] | None = None,
    price: Price = "cycle",
    max_nodes: int | None = None,
    max_expansions: int = 20_000,
) -> SearchResult:
    """Find the best selection when T is a function that is only known to grow with the selection.

    Parameters
    ----------
    parents, path_probs : int32[N], float64[N]
        The tree.
    cycle_s : callable
        Seconds of a cycle for a selection, bool[N]; more than 0, and no less for a superset.
    lower_bound_s : callable, optional
        Seconds that no superset of a selection goes below; `cycle_s` itself unless given.
    price, max_nodes, max_expansions
        As in `exact`.

    Returns
    -------
    SearchResult
        ``"optimal"``, or ``"expansion limit"`` with the best found and a valid upper bound.

    Raises
    ------
    InvalidInputError
        `cycle_s` is not positive, or is found to fall when nodes are added; or `max_nodes` is below
        1.

    Notes
    -----
    Best first over (in, open) pairs: no selection that contains *in* commits more than *in* with
    the likeliest open nodes, or takes less than the bound of *in*. Exponential at worst.
    """
    check_price(price)
    parents, path_probs = as_parents(parents), np.array(path_probs, np.float64)
    check_tree(parents, path_probs)
    check_max_nodes(max_nodes)
    limit = len(parents) if max_nodes is None else min(len(parents), max_nodes)
    search = _Search(parents, path_probs, cycle_s, lower_bound_s or cycle_s, price, limit)
    return search.run(max_expansions)


class _Search:
    """State of one best-first search."""

    def __init__(
        self,
        parents: NDArray[np.int32],
        path_probs: NDArray[np.float64],
        cycle_s: Callable[[Mask], float],
        lower_bound_s: Callable[[Mask], float],
        price: Price,
        limit: int,
    ) -> None:
        self.parents, self.path_probs = parents, path_probs
        self.cycle_s, self.lower_bound_s = cycle_s, lower_bound_s
        self.price, self.limit = price, limit
        self.num_pushed = 0
        self.heap: list[tuple[float, int, Mask, Mask]] = []
        self.mask = np.arange(len(parents)) == 0
        self.seconds = self.checked_seconds(self.mask)
        self.best = self.value(float(path_probs[0]), self.seconds)

    def run(self, max_expansions: int) -> SearchResult:
        """Expand until the best bound is attained or the limit is reached."""
        is_open = np.arange(len(self.parents)) > 0
        self.push(self.mask, is_open)
        expansions = 0
        while self.heap and -self.heap[0][0] > self.best and expansions < max_expansions:
            _, _, chosen, is_open = heapq.heappop(self.heap)
            self.expand(chosen, is_open)
            expansions += 1
        upper = max(self.best, -self.heap[0][0]) if self.heap else self.best
        tokens = float(self.path_probs[self.mask].sum())
        is_ratio = self.price == "cycle"
        paid = self.best if is_ratio else float(self.price)
        status = "optimal" if upper <= self.best else "expansion limit"
        return SearchResult(
            self.mask, self.best, upper, status, paid, is_ratio, tokens, self.seconds,
            num_expansions=expansions,
        )  # fmt: skip

    def expand(self, chosen: Mask, is_open: Mask) -> None:
        """Branch on the likeliest open child of a chosen node: in, or out with its branch."""
        fringe = is_open.copy()
        fringe[1:] &= chosen[self.parents[1:]]
        if chosen.sum() >= self.limit or not fringe.any():
            return
        node = int(np.argmax(np.where(fringe, self.path_probs, -1.0)))
        with_node = chosen.copy()
        with_node[node] = True
        seconds = self.checked_seconds(with_node)
        if seconds < self.lower_bound_s(chosen):
            raise InvalidInputError(
                f"cycle_s falls to {seconds} when node {node} is added; costs must grow with the "
                f"selection."
            )
        value = self.value(float(self.path_probs[with_node].sum()), seconds)
        if value > self.best:
            self.best, self.mask, self.seconds = value, with_node, seconds
        self.push(with_node, is_open & (np.arange(len(chosen)) != node))
        self.push(chosen, is_open & ~self.branch(node))

    def push(self, chosen: Mask, is_open: Mask) -> None:
        """Queue a subproblem unless its bound is no better than the best."""
        room = self.limit - int(chosen.sum())
        most = np.sort(self.path_probs[is_open])[::-1][:room].sum()
        tokens = float(self.path_probs[chosen].sum()) + float(most)
        bound = self.value(tokens, self.lower_bound_s(chosen))
        if bound > self.best:
            self.num_pushed += 1
            heapq.heappush(self.heap, (-bound, self.num_pushed, chosen, is_open))

    def branch(self, node: int) -> Mask:
        """Return `node` and its descendants."""
        mask: Mask = np.arange(len(self.parents)) == node
        for v in range(node + 1, len(mask)):
            mask[v] = mask[self.parents[v]]
        return mask

    def checked_seconds(self, mask: Mask) -> float:
        """Return the seconds of a selection, which must be positive."""
        seconds = float(self.cycle_s(mask))
        if not 0.0 < seconds < float("inf"):
            nodes = np.flatnonzero(mask).tolist()
            raise InvalidInputError(
                f"cycle_s of {nodes} must be finite and above 0; got {seconds}."
            )
        return seconds

    def value(self, tokens: float, seconds: float) -> float:
        """Return the objective."""
        return tokens / seconds if self.price == "cycle" else tokens - float(self.price) * seconds
