"""What each node of a drafted tree adds to the time spent on experts, given the nodes chosen."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specfit.core.policy import Cycle
from specfit.core.search import SearchProblem
from specfit.core.selection import Selection
from specfit.core.tree import first_need_probs


def marginal_expert_s(cycle: Cycle, selection: Selection) -> NDArray[np.float64]:
    """Return the expert seconds of the selection with each node, less those without it; float64[N].

    A node that is not selected takes its missing ancestors along on both sides, so that its own
    share is what is left. Expert (l, e) costs ``weight_s[l, e] * min(1, sum of r)``, the price that
    the search works with; a discount on likely paths is not applied.
    """
    needs = first_need_probs(cycle.tree.parents, cycle.path_needs())
    return marginal(cycle.tree.parents, selection.mask, needs, cycle.terms.weight_s)


def marginal_misses(cycle: Cycle, selection: Selection) -> NDArray[np.float64]:
    """Return the expected copies of the selection with each node, less those without it."""
    needs = first_need_probs(cycle.tree.parents, cycle.path_needs())
    is_missing = (~cycle.residency.mask).astype(np.float64)
    return marginal(cycle.tree.parents, selection.mask, needs, is_missing)


def marginal_gain(
    problem: SearchProblem, mask: NDArray[np.bool_], price: float
) -> NDArray[np.float64]:
    """Return what each node brings, in tokens, less what it adds to the cycle's price; float64[N].

    ``path_probs[v] - price * (node_s + expert seconds that v adds)``, as the search charges them:
    discounted, and a node that was left out with its missing ancestors taken along. The root, which
    is always verified, also pays what the pass and the drafting cost whatever is verified.

    Parameters
    ----------
    price : float
        Tokens a second, lambda.
    """
    rows, weight_s = problem.demand.rows(), problem.demand.weight_s
    expert_s = marginal(problem.parents, mask, rows, weight_s)
    sizes = int(mask.sum()) + np.where(mask, 0, 1)  # nodes with the node in question
    sizes = np.minimum(sizes, len(problem.terms.tau_s) - 1)
    node_s = problem.terms.tau_s[sizes] - problem.terms.tau_s[sizes - 1]
    node_s[0] = problem.draft_s + problem.terms.fixed_s + problem.terms.node_s
    gains: NDArray[np.float64] = problem.path_probs - price * (node_s + expert_s)
    return gains


def marginal(
    parents: NDArray[np.int32],
    mask: NDArray[np.bool_],
    needs: NDArray[np.float64],
    weights: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Return the weight of the experts of a selection with each node, less that without it.

    Parameters
    ----------
    parents, mask : int32[N], bool[N]
        The tree and the selection.
    needs : float64[N, ...]
        What each node adds to the expected use of each expert.
    weights : float64[...]
        Weight of each expert; its use counts up to 1.
    """
    added: NDArray[np.float64] = marginal_use(parents, mask, needs).reshape(
        len(parents), -1
    ) @ np.ravel(weights)
    return added


def marginal_use(
    parents: NDArray[np.int32], mask: NDArray[np.bool_], needs: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the use of each expert by a selection with each node, less that without it.

    See `marginal` for the parameters; float64[N, ...] as `needs`.
    """
    chosen = needs[mask].sum(axis=0)
    with_missing: dict[int, NDArray[np.float64]] = {}  # of nodes left out, ancestors taken along
    saved = np.empty_like(needs)
    for node, parent in enumerate(parents.tolist()):
        together = chosen
        if not mask[node]:
            together = with_missing.get(parent, chosen) + needs[node]
            with_missing[node] = together
        without = np.maximum(together - needs[node], 0.0)
        saved[node] = np.minimum(together, 1.0) - np.minimum(without, 1.0)
    return saved
