"""The exact expected union, by submodular minimisation: the reference for the priced demand.

The priced demand counts an expert with ``min(1, sum of r_v)``; under independence the expected
union is ``1 - product over the selected v of (1 - p_v)``. That is monotone submodular in the
selection, so ``price * T - A`` is minimised by the minimum-norm point of its base polytope
(Fujishige and Wolfe). Off the hot path: each step costs one pass over the probabilities a node.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specfit.core._line import line
from specfit.core.errors import InvalidInputError, UnsupportedCostError
from specfit.core.search.exact import check_takes_time
from specfit.core.search.problem import Price, SearchProblem, SearchResult, check_price

_GAP = 1e-10
"""Relative gap between the bound and the answer at which the minimum-norm point is near enough."""


class ExpectedUnion:
    """``price * T(S) - A(S)`` with the exact expected union, as a function of a set of nodes.

    A set that is not closed pays, for each node without its parent, more than that node's branch
    could ever bring; so the minimum is closed, and the function stays submodular.

    Parameters
    ----------
    problem : SearchProblem
        Tree and affine costs; its demand is not used.
    probs : float64[N, C]
        Probability that each node needs each expert.
    weight_s : float64[C]
        Seconds of each expert.
    """

    def __init__(
        self, problem: SearchProblem, probs: NDArray[np.float64], weight_s: NDArray[np.float64]
    ) -> None:
        is_line, fixed_s, self.node_s = line(problem.tau_s)
        if not is_line or problem.terms.copies is not None:
            raise UnsupportedCostError("the expected union needs affine costs: a straight tau_s.")
        self.fixed_s = fixed_s + problem.draft_s
        self.parents, self.path_probs = problem.parents, problem.path_probs
        self.unused, self.weight_s = 1.0 - probs, weight_s
        self.penalty = self.path_probs.copy()
        for node in range(len(self.penalty) - 1, 0, -1):
            self.penalty[self.parents[node]] += self.penalty[node]

    def seconds(self, mask: NDArray[np.bool_]) -> float:
        """Return T of a selection, bool[N]."""
        used = 1.0 - self.unused[mask].prod(axis=0)
        return float(self.fixed_s + self.node_s * float(mask.sum()) + self.weight_s @ used)

    def vertex(self, order: NDArray[np.intp], price: float) -> NDArray[np.float64]:
        """Return the vertex of the base polytope for an order of the nodes below the root.

        Entry ``v - 1`` is what node v adds to the function when it joins those before it.
        """
        added = np.empty(len(order))
        unused = self.unused[0].copy()
        is_in = np.zeros(len(self.parents), bool)
        is_in[0] = True
        missing_parent = np.zeros(len(self.parents))
        for node in order + 1:
            is_in[node] = True
            more = self.weight_s @ (unused * (1.0 - self.unused[node]))
            unused *= self.unused[node]
            orphan = 0.0 if is_in[self.parents[node]] else self.penalty[node]
            added[node - 1] = (
                price * (self.node_s + more) - self.path_probs[node] + orphan
                - missing_parent[node]
            )  # fmt: skip
            missing_parent[self.parents[node]] += orphan
        return added


def exact_union(
    problem: SearchProblem,
    probs: NDArray[np.float32],
    *,
    price: Price = "cycle",
    max_steps: int = 2_000,
) -> SearchResult:
    """Find the best selection when experts cost their exact expected union.

    Parameters
    ----------
    problem : SearchProblem
        Tree and affine costs, no node limit below N; its demand is not used.
    probs : float32[N, L, E]
        Predicted routing of all nodes, taken as independent between nodes.
    price : "cycle" or float
        See `exact`.
    max_steps : int
        Steps towards the minimum-norm point, for each price.

    Returns
    -------
    SearchResult
        ``"optimal"`` when bound and answer agree to a relative 1e-10, else ``"expansion limit"``
        with the base polytope's bound.
    """
    check_price(price)
    check_takes_time(problem, price)
    shape = (len(problem), *problem.terms.weight_s.shape)
    if probs.shape != shape:
        raise InvalidInputError(f"probs must be {list(shape)}; got {list(probs.shape)}.")
    priced = problem.terms.weight_s > 0
    chances = probs[:, priced].astype(np.float64)
    union = ExpectedUnion(problem, chances, problem.terms.weight_s[priced])
    mask = np.arange(len(problem)) == 0
    tokens, seconds = float(problem.path_probs[0]), union.seconds(mask)
    steps, paid = 0, 0.0
    while True:
        paid = tokens / seconds if price == "cycle" else float(price)
        found, bound, taken = _minimise(union, paid, max_steps)
        steps += taken
        better_tokens, better_s = float(problem.path_probs[found].sum()), union.seconds(found)
        gain = better_tokens - paid * better_s
        raised = gain > tokens - paid * seconds + _GAP * tokens
        if raised:
            mask, tokens, seconds = found, better_tokens, better_s
        if not raised or price != "cycle":
            break
    upper_gain = max(bound, tokens - paid * seconds)
    objective = float(paid if price == "cycle" else tokens - paid * seconds)
    root_s = union.seconds(np.arange(len(problem)) == 0)
    upper = paid + max(0.0, upper_gain) / root_s if price == "cycle" else upper_gain
    is_tight = upper - objective <= 10 * _GAP * max(1.0, tokens, abs(objective))
    status = "optimal" if is_tight else "expansion limit"
    return SearchResult(
        mask, objective, float(upper), status, float(paid), price == "cycle", tokens, seconds,
        num_expansions=steps,
    )  # fmt: skip


def _minimise(
    union: ExpectedUnion, price: float, max_steps: int
) -> tuple[NDArray[np.bool_], float, int]:
    """Return the best selection found, a bound on ``A - price * T``, and the steps taken."""
    root = np.arange(len(union.parents)) == 0
    root_gain = float(union.path_probs[0]) - price * union.seconds(root)
    if len(root) == 1:
        return root, root_gain, 0
    best, best_gain, bound = root, root_gain, np.inf
    points = union.vertex(np.arange(len(root) - 1), price)[None]
    weights = np.ones(1)
    steps = 0
    while steps < max_steps:
        steps += 1
        x = weights @ points
        order = np.argsort(x, kind="stable")
        vertex = union.vertex(order, price)
        gains = root_gain - np.concatenate([[0.0], np.cumsum(vertex[order])])
        size = int(np.argmax(gains))
        if gains[size] > best_gain:
            best_gain = float(gains[size])
            best = root.copy()
            best[order[:size] + 1] = True
        bound = min(bound, root_gain - float(np.minimum(x, 0.0).sum()))
        if bound - best_gain <= _GAP * max(1.0, abs(best_gain)) or x @ x <= x @ vertex + 1e-15:
            break
        points, weights = _nearest(np.vstack([points, vertex]), np.append(weights, 0.0))
    return _closed(union, best), bound, steps


def _closed(union: ExpectedUnion, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Drop nodes without their parent, which only an unfinished minimisation leaves."""
    closed = mask.copy()
    for node in range(1, len(closed)):
        closed[node] &= closed[union.parents[node]]
    return closed


def _nearest(
    points: NDArray[np.float64], weights: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the points whose hull has the point nearest to 0 inside it, and its weights."""
    while True:
        affine = _affine_weights(points)
        if (affine > 1e-14).all():
            return points, affine
        falling = affine <= 1e-14
        steps = weights[falling] / np.maximum(weights[falling] - affine[falling], 1e-300)
        weights = weights + min(1.0, float(steps.min())) * (affine - weights)
        keep = weights > 1e-14
        points, weights = points[keep], weights[keep] / weights[keep].sum()


def _affine_weights(points: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the weights, summing to 1, of the point nearest to 0 in the affine hull."""
    size = len(points)
    system = np.ones((size + 1, size + 1))
    system[:size, :size] = points @ points.T
    system[size, size] = 0.0
    right = np.zeros(size + 1)
    right[size] = 1.0
    solution = np.linalg.lstsq(system, right, rcond=None)[0]
    return np.asarray(solution[:size], np.float64)
