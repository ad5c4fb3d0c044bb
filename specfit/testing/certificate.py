"""Checks a certificate of the exact search; trusts nothing that the search says."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import ContractError
from specfit.core.search import Certificate, SearchProblem, SearchResult

TOLERANCE = 1e-9
"""Relative to the expected committed tokens of all nodes."""


def check_certificate(
    problem: SearchProblem, result: SearchResult, certificate: Certificate
) -> None:
    """Raise unless `certificate` proves that no selection of `problem` is better than `result`.

    Everything is recomputed from the problem in numpy. The rules are

    * O1 the selection holds the root and with each node its parent;
    * O2 A, T and the objective are those of the selection at the certificate's price;
    * O3 each share is at least 0 and at most ``price * weight_s * r_v``;
    * O4 the shares of a column add up to at most ``price * weight_s``;
    * O5 under the shares no closed subtree gains more than the bar.

    Raises
    ------
    ContractError
        Names the rule that fails, with the numbers.
    """
    slack = TOLERANCE * float(np.sum(problem.path_probs))
    _check_selection(problem, result.mask)
    _check_objective(problem, result, certificate, slack)
    limits = certificate.price * problem.demand.weight_s * problem.demand.rows()
    _check_shares(certificate.shares, limits, slack)
    sums = certificate.shares.sum(axis=0)
    over = sums - certificate.price * problem.demand.weight_s
    if len(over) and not over.max() <= slack:
        column = int(np.argmax(over))
        raise ContractError(
            "O4", f"the shares of column {column} exceed its price by {over.max():g}."
        )
    gain = _best_gain(problem, certificate)
    if not gain <= certificate.bar + slack:
        raise ContractError(
            "O5", f"a selection may gain {gain:g}, above the bar of {certificate.bar:g}."
        )


def _check_selection(problem: SearchProblem, mask: NDArray[np.bool_]) -> None:
    if mask.shape != (len(problem),) or not mask[0]:
        raise ContractError("O1", f"{list(mask.shape)} mask with root {mask[:1]} is no selection.")
    orphans = np.flatnonzero(mask[1:] & ~mask[problem.parents[1:]])
    if orphans.size:
        raise ContractError("O1", f"node {orphans[0] + 1} is selected without its parent.")


def _check_objective(
    problem: SearchProblem, result: SearchResult, certificate: Certificate, slack: float
) -> None:
    demand = problem.demand
    used = np.minimum(1.0, demand.rows()[result.mask].sum(axis=0))
    tokens = float(problem.path_probs[result.mask].sum())
    pass_s = float(problem.terms.tau_s[result.mask.sum()]) + float(demand.weight_s @ used)
    total_s = float(problem.terms.draft_s[problem.levels]) + pass_s
    gain = tokens - certificate.price * total_s
    objective = certificate.price if result.is_ratio else gain
    said = (result.expected_committed, result.cycle_s, result.price, result.objective)
    found = (tokens, total_s, certificate.price, objective)
    rounding = (0.0, 0.0, 0.0, 0.0 if result.is_ratio else slack)  # a gain is a difference
    if not np.allclose(said, found, rtol=TOLERANCE, atol=rounding):
        raise ContractError("O2", f"A, T, price and objective are {found}; the result says {said}.")
    if not abs(gain - certificate.bar) <= slack:
        raise ContractError("O2", f"the selection gains {gain:g}; the bar is {certificate.bar:g}.")


def _check_shares(shares: NDArray[np.float64], limits: NDArray[np.float64], slack: float) -> None:
    if shares.shape != limits.shape or not np.isfinite(shares).all():
        raise ContractError("O3", f"shares must be finite {list(limits.shape)}.")
    wrong = (shares < 0) | (shares > limits + slack)
    if wrong.any():
        node, column = np.argwhere(wrong)[0]
        raise ContractError(
            "O3",
            f"node {node} pays {shares[node, column]:g} of column {column}, "
            f"which is not from 0 to {limits[node, column]:g}.",
        )


def _best_gain(problem: SearchProblem, certificate: Certificate) -> float:
    """Return the most that a closed subtree gains when its nodes pay their shares."""
    tau_s = problem.terms.tau_s[: len(problem) + 1]
    node_s = float(np.max(np.diff(tau_s[1:]), initial=0.0))
    fixed_s = float(np.min(tau_s[1:] - node_s * np.arange(1, len(tau_s))))
    gains = problem.path_probs - certificate.price * node_s - certificate.shares.sum(axis=1)
    gains[0] -= certificate.price * (fixed_s + float(problem.terms.draft_s[problem.levels]))
    for node in range(len(problem) - 1, 0, -1):
        gains[problem.parents[node]] += max(0.0, gains[node])
    return float(gains[0])
