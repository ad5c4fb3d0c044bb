"""What a pass takes on average for a number of nodes: the profile of rules that see no experts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specfit.core.cost import CostTerms
from specfit.core.policy import Cycle


def mean_pass_s(cycle: Cycle, max_nodes: int, paid: float) -> NDArray[np.float64]:
    """Return the mean seconds of verifying 0 to `max_nodes` nodes, float64[max_nodes + 1].

    A method that times its passes by their size alone sees an average over texts. Routing that is
    uniform and independent would need a share ``1 - (1 - K / E)**n`` of the experts, each at the
    mean price of now; neighbouring tokens share more and caches keep what is used, so only a part
    of it is paid.

    Parameters
    ----------
    max_nodes : int
        Cut to what the cost model covers.
    paid : float
        The part that passes were seen to pay, 0 or more; found on recorded texts.

    Source
    ------
    The union of independent tokens: arXiv 2605.00342 and arXiv 2505.19645. `paid` is ours: it
    stands for the timings that those methods take on their machine.
    """
    terms, geometry = cycle.terms, cycle.geometry
    nodes = np.arange(min(max_nodes, len(terms.tau_s) - 1) + 1)
    union = 1.0 - (1.0 - geometry.experts_per_token / geometry.num_experts) ** nodes
    if terms.copies is None:
        seconds: NDArray[np.float64] = terms.tau_s[nodes] + paid * union * terms.weight_s.sum()
        return seconds
    shares = np.minimum(paid * union, 1.0)
    shape = terms.weight_s.shape
    return np.array([terms.pass_s(int(n), np.full(shape, shares[n])) for n in nodes])


def dearest_expert_s(terms: CostTerms) -> float:
    """Return what the first missing expert adds to a pass at most: a copy, with no other to it."""
    copy_s = 0.0
    if terms.copies is not None and terms.copies.units.any():
        copy_s = float((terms.copies.layer_s[:, 1] - terms.copies.layer_s[:, 0]).max())
    return float(terms.weight_s.max()) + copy_s
