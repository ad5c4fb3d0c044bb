"""Acceptance curves that follow the text: easy stretches and hard ones are told apart as they come.

A text that repeats itself is accepted far more often than its drafter's probabilities say, and no
curve can know. What the target said along a cycle's accepted path moves all log odds from then on.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from specfit.core.policy import Outcome
from specfit.core.predictor import AcceptanceModel, acceptance_models
from specfit.core.tree import DraftTree
from specfit.policies.acceptance._kernels import surprise
from specfit.policies.acceptance.acceptance_curves import CURVES_FILE, AcceptanceCurves

LARGEST_SHIFT = 3.0
"""Bound of the shift, in log odds."""


@acceptance_models.register("adaptive")
@dataclass
class Adaptive(AcceptanceModel):
    """Calibrate by fitted curves, and shift them as the request goes.

    The log odds that one of a node's children is accepted carry a common shift. After each cycle it
    moves by ``step * (accepted - expected)``, summed over the nodes of the accepted path whose
    children were drafted: the gradient of the log-likelihood.

    Parameters
    ----------
    folder : str
        Folder of the fitted curves; read when first needed.
    temperature : float
        Temperature of the target; 0 is greedy.
    step : float
        How far one observation moves the shift, in log odds; 0 never does.
    """

    folder: str
    temperature: float = 0.0
    step: float = 0.5
    _shift: float = field(default=0.0, init=False, repr=False, compare=False)

    @cached_property
    def curves(self) -> AcceptanceCurves:
        """The fitted numbers at this temperature."""
        return AcceptanceCurves.load(CURVES_FILE, Path(self.folder)).at(self.temperature)

    def calibrate(self, tree: DraftTree) -> NDArray[np.float64]:
        """Return each node's acceptance probability given its parent, float64[N]."""
        return self.curves.accept_probs(tree, self._shift)

    def continuation(self, depth: int, top_k: int) -> float:
        """Return the probability that one of `top_k` children at `depth` is the target's token."""
        return self.curves.continuation(depth, top_k, self._shift)

    def observe(self, outcome: Outcome) -> None:
        """Learn from the children of the root and of the accepted nodes, verified or not."""
        tree, answer = outcome.cycle.tree, outcome.verification
        if len(tree) == 1:
            return
        path = np.array((0, *outcome.accepted), np.intp)
        nodes, targets = answer.nodes, answer.target_tokens
        is_ours = outcome.cycle.acceptance is self
        believed = outcome.cycle.accept_probs if is_ours else self.calibrate(tree)
        off = surprise(tree.parents, tree.tokens, believed, nodes, targets, path)
        self._shift = min(max(self._shift + self.step * off, -LARGEST_SHIFT), LARGEST_SHIFT)

    def reset(self) -> None:
        """Return to the fitted curves."""
        self._shift = 0.0
