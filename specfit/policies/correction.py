"""Corrections that a running text gives to the two predictions: acceptance and misses.

Fitted inputs are right on average over texts; one text may be easier to draft, or jump about more
among the experts, than the average. What each cycle shows of the error corrects the next ones.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core._jit import kernel
from specfit.core.cost import CostTerms
from specfit.core.experts import Residency
from specfit.core.policy import Outcome
from specfit.core.tree import DraftTree

LARGEST_SHIFT = 3.0
"""Bound of the correction of acceptance, in log-odds."""

PRIOR_MISSES = 40.0
"""Misses that must have been seen before the correction of misses trusts the text half-way."""


@kernel
def _shift_siblings(parents: Any, probs: Any, factor: float, corrected: Any) -> None:
    """Multiply the odds of each group of siblings by `factor`; float64[N] in and out."""
    mass = np.zeros(parents.size)
    for node in range(1, parents.size):
        mass[parents[node]] += probs[node]
    corrected[0] = probs[0]
    for node in range(1, parents.size):
        found = min(mass[parents[node]], 1.0)
        corrected[node] = probs[node] * factor / (1.0 - found + found * factor)


class AcceptanceCorrection:
    """Shifts the log-odds that one of a node's children is the target's token.

    Children keep their shares, so siblings still sum to at most 1. After each cycle the shift moves
    by ``step * (found - expected)`` for every node on the accepted path whose children were
    drafted: the gradient of the log-likelihood.

    Parameters
    ----------
    step : float
        Step of the gradient ascent; 0 never corrects.
    """

    def __init__(self, step: float) -> None:
        self.step = step
        self.shift = 0.0

    def shifted(self, probs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return probabilities with their log-odds shifted."""
        factor = np.exp(self.shift)
        corrected: NDArray[np.float64] = probs * factor / (1 - probs + probs * factor)
        return corrected

    def correct(self, tree: DraftTree, accept_probs: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return corrected acceptance probabilities, float64[N]; 1 at the root."""
        if self.shift == 0.0 or len(tree) == 1:
            return accept_probs
        corrected = np.empty(len(tree))
        _shift_siblings(tree.parents, accept_probs, float(np.exp(self.shift)), corrected)
        return corrected

    def observe(self, outcome: Outcome) -> None:
        """Learn from the nodes that the accepted path visited."""
        tree, verification = outcome.cycle.tree, outcome.verification
        probs = self.correct(tree, outcome.cycle.accept_probs)
        for node in (0, *outcome.accepted):
            children = tree.children(node)
            if len(children) == 0:
                continue
            place = int(np.searchsorted(verification.nodes, node))
            found = bool((tree.tokens[children] == verification.target_tokens[place]).any())
            self.shift += self.step * (float(found) - float(probs[children].sum()))
        self.shift = min(max(self.shift, -LARGEST_SHIFT), LARGEST_SHIFT)


class MissCorrection:
    """Scales the price of missing experts by realised over predicted misses, lately.

    Parameters
    ----------
    memory : float
        Weight of the past, a cycle; 1 never corrects.
    """

    def __init__(self, memory: float) -> None:
        self.memory = memory
        self.scale = 1.0
        self._predicted = self._realised = PRIOR_MISSES

    def correct(self, terms: CostTerms, residency: Residency) -> CostTerms:
        """Return the terms with what missing experts cost scaled."""
        if self.scale == 1.0 or residency.mask.all():
            return terms
        scale = np.where(residency.mask, 1.0, self.scale)
        return replace(terms, weight_s=terms.weight_s * scale)

    def observe(self, outcome: Outcome) -> None:
        """Learn from a cycle whose misses were predicted."""
        prediction = outcome.selection.prediction
        if prediction is None or self.memory == 1.0:
            return
        kept = self.memory
        unscaled = prediction.misses / self.scale
        realised = float(outcome.verification.num_misses.sum())
        self._predicted = kept * self._predicted + (1 - kept) * PRIOR_MISSES + unscaled
        self._realised = kept * self._realised + (1 - kept) * PRIOR_MISSES + realised
        self.scale = self._realised / self._predicted
