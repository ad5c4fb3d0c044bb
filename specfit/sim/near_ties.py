"""Where a recorded answer is not the text's token: a pass of another width rounded otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core._kernels import fill_text_path
from specfit.core.tree import DraftTree
from specfit.sim.trace.rows import Answers


@dataclass(frozen=True)
class NearTie:
    """A recorded answer that differs from the text, because batch width changes rounding.

    Parameters
    ----------
    prompt : int
        Index of the prompt.
    position : int
        Index in the whole text of the token whose answer it is.
    margin : float
        The answer's lead over the runner-up in logits.
    """

    prompt: int
    position: int
    margin: float


def follow_text(
    tree: DraftTree, nodes: NDArray[np.intp], answers: Answers, text: tuple[int, ...]
) -> Iterator[tuple[int, float]]:
    """Give each selected node on the text's path the text's token; yield where it had another.

    Parameters
    ----------
    nodes : intp[n]
        The selected nodes, ascending; `answers` are theirs, and their tokens are changed.
    text : tuple of int
        The tokens after the root.

    Yields
    ------
    depth, margin
        Depth of a node whose answer was another token, and that answer's lead.
    """
    ahead = np.array(text, np.int64)
    path = np.empty(min(len(nodes), len(text)), np.intp)
    path = path[: fill_text_path(tree.parents, tree.tokens, nodes, ahead, path)]
    differs = answers.target_tokens[path] != ahead[: len(path)]
    for depth in np.flatnonzero(differs).tolist():
        row = path[depth]
        yield depth, float(answers.margins[row])
        answers.target_tokens[row] = ahead[depth]
