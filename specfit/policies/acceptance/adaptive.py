"""Acceptance curves that follow the text: easy stretches and hard ones are told apart as they come.

A text that repeats itself is accepted far more often than its drafter's probabilities say, and no
curve can know. What the target said of the best children of a cycle's accepted path moves all best
children's log odds from then on, as a logistic regression with forgetting would.
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
from specfit.policies.acceptance.acceptance_curves import AcceptanceCurves

_MOST = 4.0


@acceptance_models.register("adaptive")
@dataclass
class Adaptive(AcceptanceModel):
    """Calibrate by fitted curves, and move them as the request goes.

    Parameters
    ----------
    folder : str
        Folder of the fitted curves; read when first needed.
    temperature : float
        Temperature of the target; 0 is greedy.
    memory : float
        Weight of a cycle's evidence after each further cycle, in [0, 1).
    caution : float
        Evidence, in units of ``p (1 - p)`` of a judged child, that the fitted curves count for.
    """

    folder: str
    temperature: float = 0.0
    memory: float = 0.95
    caution: float = 2.0
    _shift: float = field(default=0.0, init=False, repr=False, compare=False)
    _evidence: float = field(default=0.0, init=False, repr=False, compare=False)

    @cached_property
    def curves(self) -> AcceptanceCurves:
        """The fitted numbers at this temperature."""
        return AcceptanceCurves.load(Path(self.folder)).at(self.temperature)

    def calibrate(self, tree: DraftTree) -> NDArray[np.float64]:
        """Return each node's acceptance probability given its parent, float64[N]."""
        return self.curves.accept_probs(tree, self._shift)

    def continuation(self, depth: int, top_k: int) -> float:
        """Return the probability that one of `top_k` children at `depth` is the target's token."""
        return self.curves.continuation(depth, top_k, self._shift)

    def observe(self, outcome: Outcome) -> None:
        """Learn from the best children of the root and of the accepted nodes, verified or not."""
        tree = outcome.cycle.tree
        judged, is_hit = _judged(outcome)
        if len(judged) == 0:
            return
        probs = self.calibrate(tree)[judged]
        self._evidence = self.memory * self._evidence + float((probs * (1.0 - probs)).sum())
        step = float((is_hit - probs).sum()) / (self._evidence + self.caution)
        self._shift = min(max(self._shift + step, -_MOST), _MOST)

    def reset(self) -> None:
        """Return to the fitted curves."""
        self._shift = self._evidence = 0.0


def _judged(outcome: Outcome) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return the best children of the accepted path, and whether each is the target's token."""
    tree, answer = outcome.cycle.tree, outcome.verification
    path = np.array((0, *outcome.accepted))
    targets = np.full(len(tree), -1, np.int64)
    targets[path] = answer.target_tokens[np.searchsorted(answer.nodes, path)]
    best = np.flatnonzero(tree.ranks[1:] == 0) + 1
    judged = best[targets[tree.parents[best]] >= 0]
    return judged, tree.tokens[judged] == targets[tree.parents[judged]]
