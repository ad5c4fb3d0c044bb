"""What is searched, and what is found: the values that cross the border of the search."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from specfit.core.cost import CostTerms
from specfit.core.errors import InvalidInputError, InvalidTreeError
from specfit.core.search import _checks
from specfit.core.search.demand import Demand

Price = float | Literal["cycle"]
"""``"cycle"`` maximises A / T; a number, in tokens a second, maximises A - price * T."""


@dataclass(frozen=True, eq=False)
class SearchProblem:
    """One draft tree, priced, with the cost of verifying a part of it.

    Parameters
    ----------
    parents : int32[N]
        -1 at node 0, the root; every other parent comes before its child.
    path_probs : float64[N]
        Calibrated probability that the path from the root to each node is accepted; never above the
        parent's.
    demand : Demand
        What each node adds to the expected use of each expert.
    terms : CostTerms
        Seconds of drafting, verifying and experts.
    levels : int
        Drafted levels, for ``terms.draft_s``.
    max_nodes : int, optional
        Upper limit of the selection, root included; the length of ``terms.tau_s`` is another.

    Raises
    ------
    InvalidTreeError
        The arrays do not describe a tree with path probabilities; names the index and the value.
    InvalidInputError
        A shape, `levels` or `max_nodes` does not fit.
    """

    parents: NDArray[np.int32]
    path_probs: NDArray[np.float64]
    demand: Demand
    terms: CostTerms
    levels: int
    max_nodes: int | None = None

    def __post_init__(self) -> None:
        # Kernels are compiled for writable arrays, so each array gets a private copy.
        object.__setattr__(self, "parents", as_parents(self.parents))
        object.__setattr__(self, "path_probs", np.array(self.path_probs, np.float64))
        _check(self)

    def __len__(self) -> int:
        return len(self.parents)

    @property
    def node_limit(self) -> int:
        """The most nodes that a selection may have."""
        limit = min(len(self), len(self.terms.tau_s) - 1)
        return limit if self.max_nodes is None else min(limit, self.max_nodes)

    @cached_property
    def tau_s(self) -> NDArray[np.float64]:
        """The part of ``terms.tau_s`` that selections of this tree can reach, from 0 nodes on."""
        return self.terms.tau_s[: len(self) + 1].copy()

    @property
    def draft_s(self) -> float:
        """Seconds already spent on drafting."""
        return float(self.terms.draft_s[self.levels])


@dataclass(frozen=True, eq=False, init=False)
class SearchResult:
    """The best selection of a draft tree, and how good anything else could be.

    Parameters
    ----------
    mask : bool[N]
        The selected nodes: the root, and with each node its parent.
    objective : float
        Tokens a second (price "cycle"), or tokens: ``expected_committed - price * cycle_s``.
    upper_bound : float
        No selection has a higher objective than this.
    status : str
        ``"optimal"``, ``"expansion limit"`` when the search stopped with a gap to `upper_bound`, or
        ``"greedy"``.
    price : float
        Tokens a second at which a second was charged; for "cycle" the objective itself.
    is_ratio : bool
        Whether the price was "cycle": the objective is A / T.
    expected_committed : float
        Sum of the path probabilities of the selection, root included.
    cycle_s : float
        Predicted seconds of the cycle.
    num_rounds, num_cuts, num_expansions : int
        Work done: bounding rounds, minimum cuts, branch-and-bound nodes.
    """

    mask: NDArray[np.bool_]
    objective: float
    upper_bound: float
    status: str
    price: float
    is_ratio: bool
    expected_committed: float
    cycle_s: float
    num_rounds: int = 0
    num_cuts: int = 0
    num_expansions: int = 0

    def __init__(
        self,
        mask: NDArray[np.bool_],
        objective: float,
        upper_bound: float,
        status: str,
        price: float,
        is_ratio: bool,
        expected_committed: float,
        cycle_s: float,
        num_rounds: int = 0,
        num_cuts: int = 0,
        num_expansions: int = 0,
    ) -> None:
        # Into the dictionary: a frozen class sets a field by a call, and eleven take a microsecond.
        fields = self.__dict__
        fields["mask"], fields["objective"], fields["upper_bound"] = mask, objective, upper_bound
        fields["status"], fields["price"], fields["is_ratio"] = status, price, is_ratio
        fields["expected_committed"], fields["cycle_s"] = expected_committed, cycle_s
        fields["num_rounds"], fields["num_cuts"] = num_rounds, num_cuts
        fields["num_expansions"] = num_expansions

    @property
    def gain(self) -> float:
        """``A - price * T`` of the selection in tokens; 0 at price "cycle", its own rate."""
        return 0.0 if self.is_ratio else self.objective

    @property
    def num_nodes(self) -> int:
        """Selected nodes, root included."""
        return int(np.count_nonzero(self.mask))


def check_price(price: Price) -> None:
    """Raise unless `price` is ``"cycle"`` or a finite number of tokens a second, 0 or more."""
    is_number = isinstance(price, (int, float, np.integer, np.floating))
    if price == "cycle" or (is_number and 0.0 <= price < float("inf")):
        return
    raise InvalidInputError(
        f"price must be 'cycle' or a finite number of tokens a second, 0 or more; got {price!r}."
    )


def check_max_nodes(max_nodes: int | None) -> None:
    """Raise unless `max_nodes` is 1 or more, or no limit."""
    if max_nodes is not None and not max_nodes >= 1:
        raise InvalidInputError(
            f"max_nodes counts the root and must be at least 1; got {max_nodes}."
        )


def check_levels(levels: int, terms: CostTerms) -> None:
    """Raise unless ``terms.draft_s`` knows the seconds of so many drafted levels."""
    if not 0 <= levels < len(terms.draft_s):
        raise InvalidInputError(
            f"levels must be from 0 to {len(terms.draft_s) - 1}, the length of draft_s less 1; "
            f"got {levels}."
        )


def check_takes_a_node(terms: CostTerms) -> None:
    """Raise unless the seconds of a pass over the root alone are there."""
    if len(terms.tau_s) < 2:
        raise InvalidInputError(
            f"tau_s must hold the seconds of at least one node, tau_s[1]; got length "
            f"{len(terms.tau_s)}. Give one more than the most nodes of a pass."
        )


def as_parents(parents: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
    """Return a copy as int32[N]; raise if that would change a value."""
    given = np.asarray(parents)
    if given.dtype == np.int32:
        return given.copy()
    with np.errstate(invalid="ignore"):
        copy = np.array(given, np.int32)
    if not np.array_equal(copy, given):
        where = np.argwhere(copy != given)[0].tolist()
        raise InvalidTreeError(
            f"parents{where} = {given[tuple(where)]}, but a parent is the index of a node, or -1."
        )
    return copy


def _check(problem: SearchProblem) -> None:
    n = len(problem.parents)
    if not n == len(problem.path_probs) == len(problem.demand):
        raise InvalidInputError(
            f"parents, path_probs and demand must have one entry a node; "
            f"got {n}, {len(problem.path_probs)} and {len(problem.demand)}."
        )
    check_levels(problem.levels, problem.terms)
    check_max_nodes(problem.max_nodes)
    check_takes_a_node(problem.terms)
    check_tree(problem.parents, problem.path_probs)


def check_tree(parents: NDArray[np.int32], path_probs: NDArray[np.float64]) -> None:
    """Raise unless the arrays, int32[N] and float64[N], describe a tree with path probabilities."""
    if parents.ndim != 1 or parents.shape != path_probs.shape:
        raise InvalidInputError(
            f"parents and path_probs must have one entry a node; "
            f"got {list(parents.shape)} and {list(path_probs.shape)}."
        )
    if len(parents) == 0:
        raise InvalidTreeError("a tree has at least its root; got no nodes.")
    fault, node = _checks.check_tree(parents, path_probs)
    if fault:
        raise InvalidTreeError(_tree_fault(parents, path_probs, fault, node))


def _tree_fault(
    parents: NDArray[np.int32], path_probs: NDArray[np.float64], fault: int, node: int
) -> str:
    parent, prob = parents[node], path_probs[node]
    if fault == _checks.BAD_ROOT:
        return f"parents[0] must be -1, the root's; got {parent}."
    if fault == _checks.BAD_PARENT:
        return (
            f"parents[{node}] = {parent}, but a parent must come before its child "
            f"(0 <= parents[{node}] < {node}). Order the nodes root first."
        )
    if fault == _checks.BAD_PROB:
        return f"path_probs[{node}] = {prob}, but a probability is from 0 to 1."
    return (
        f"path_probs[{node}] = {prob} is above that of its parent, "
        f"path_probs[{parent}] = {path_probs[parent]}; a longer path is never likelier."
    )
