"""The sample that expert tables are fitted on: nodes whose routing the target has shown."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.errors import InvalidInputError


@dataclass(frozen=True, eq=False)
class RoutingSample:
    """Nodes whose routing the target has shown, and the committed texts that they grew on.

    Every node that was verified counts, rejected ones too.

    Parameters
    ----------
    stream : int16[T, L, K]
        Routing of the committed texts, one after another.
    texts : int32[T]
        Text that each token of the stream belongs to, non-decreasing.
    tokens, parent_tokens : int64[n]
        Each node's token and its parent's; `NO_PARENT` where the node is a root.
    depths : int32[n]
        Depth of each node; a root has 0.
    roots : int64[n]
        Place in the stream of each node's root: what lies before it in its text is the history.
    routing : int16[n, L, K]
        Experts of each node.
    follows : bool[n]
        Whether the nodes above each node are the text's own tokens: then the stream has their
        routing, ``depth`` rows from the root on. A root has none above it.
    """

    stream: NDArray[np.int16]
    texts: NDArray[np.int32]
    tokens: NDArray[np.int64]
    parent_tokens: NDArray[np.int64]
    depths: NDArray[np.int32]
    roots: NDArray[np.int64]
    routing: NDArray[np.int16]
    follows: NDArray[np.bool_]

    def __post_init__(self) -> None:
        columns = (self.tokens, self.parent_tokens, self.depths, self.roots, self.follows)
        sizes = {len(column) for column in columns}
        if sizes != {len(self.routing)} or len(self.stream) != len(self.texts):
            raise InvalidInputError(
                f"a routing sample needs one value a node and one text a token; got {sizes} and "
                f"{len(self.routing)} nodes, {len(self.stream)} tokens and {len(self.texts)} texts."
            )
        if len(self.roots) and not 0 <= self.roots.min() <= self.roots.max() < len(self.stream):
            raise InvalidInputError(
                f"roots must lie in the stream of {len(self.stream)} tokens; "
                f"got {self.roots.min()} to {self.roots.max()}."
            )
        ends = (self.roots + self.depths)[self.follows]
        if len(ends) and ends.max() > len(self.stream):
            raise InvalidInputError(
                f"a node that follows the text must have it above it in the stream of "
                f"{len(self.stream)} tokens; got one that ends at {ends.max()}."
            )
