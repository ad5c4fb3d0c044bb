"""Where a recorded answer is not the text's token: a pass of another width rounded otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
    ids, answered = nodes.tolist(), answers.target_tokens.tolist()
    parents, tokens = tree.parents[nodes].tolist(), tree.tokens[nodes].tolist()
    node, depth = -1, -1
    for row, (parent, drafted) in enumerate(zip(parents, tokens, strict=True)):
        # A child comes after its parent, so the path is met in order.
        if parent != node or (depth >= 0 and drafted != text[depth]):
            continue
        node, depth = ids[row], depth + 1
        if depth == len(text):
            return
        if answered[row] != text[depth]:
            yield depth, float(answers.margins[row])
            answers.target_tokens[row] = text[depth]
