"""Acceptance curves that follow the text: what it repeats, and how easy it has been so far.

A text that repeats itself is accepted far more often than its drafter's probabilities say. Where
its last tokens stood before, what followed them then speaks for a node or against it; and what the
target said along a cycle's accepted path moves all log odds from then on.
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
from specfit.policies.acceptance._repeats import WINDOW, longest_run
from specfit.policies.acceptance.acceptance_curves import CURVES_FILE, AcceptanceCurves

LARGEST_SHIFT = 3.0
"""Bound of the shift, in log odds."""


@acceptance_models.register("adaptive")
@dataclass
class Adaptive(AcceptanceModel):
    """Calibrate by fitted curves, by what the text repeats, and shift them as the request goes.

    The longest run of tokens that ends at a node's parent and stood in the text before speaks for
    the node or against it. The text is what cycles committed; the prompt is not seen.

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
    step: float = 0.2
    _shift: float = field(default=0.0, init=False, repr=False, compare=False)
    _text: NDArray[np.int64] = field(init=False, repr=False, compare=False)
    _run: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        self.reset()

    @cached_property
    def curves(self) -> AcceptanceCurves:
        """The fitted numbers at this temperature."""
        return AcceptanceCurves.load(CURVES_FILE, Path(self.folder)).at(self.temperature)

    def calibrate(self, tree: DraftTree) -> NDArray[np.float64]:
        """Return each node's acceptance probability given its parent, float64[N]."""
        return self.curves.probs_after(self._text[:-1], tree, self._shift)

    def continuation(self, depth: int, top_k: int) -> float:
        """Return the probability that one of `top_k` children at `depth` is the target's token."""
        return self.curves.continuation_after(self._run, depth, top_k, self._shift)

    def observe(self, outcome: Outcome) -> None:
        """Take in what was committed; learn from the children of the root and accepted nodes.

        They count whether they were verified or not.
        """
        if len(outcome.cycle.tree) > 1:
            self._learn(outcome)
        newest = (outcome.cycle.tree.tokens[:1], np.array(outcome.committed, np.int64))
        self._text = np.concatenate((self._text[:-1], *newest))[-WINDOW - 1 :]
        root = len(self._text) - 1
        self._run = longest_run(self._text, root, root)[0]

    def reset(self) -> None:
        """Return to the fitted curves and to no text."""
        self._shift, self._run = 0.0, 0
        self._text = np.zeros(0, np.int64)

    def _learn(self, outcome: Outcome) -> None:
        tree, answer = outcome.cycle.tree, outcome.verification
        path = np.array((0, *outcome.accepted), np.intp)
        nodes, targets = answer.nodes, answer.target_tokens
        is_ours = outcome.cycle.acceptance is self
        believed = outcome.cycle.accept_probs if is_ours else self.calibrate(tree)
        off = surprise(tree.parents, tree.tokens, believed, nodes, targets, path)
        self._shift = min(max(self._shift + self.step * off, -LARGEST_SHIFT), LARGEST_SHIFT)
