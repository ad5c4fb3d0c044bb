"""Numba kernels that find where a text repeats itself, and what it went on with.

Calling convention: flat arrays in, results into an array passed in; no validation.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specfit.core._jit import kernel

LONGEST_RUN = 8
"""Tokens of a run that are compared; longer runs count as these."""

WINDOW = 256
"""Tokens before the root in which a run is looked for."""


@kernel
def longest_run(tokens: NDArray[np.int64], root: int, last: int) -> tuple[int, int]:
    """Return the longest run that ends at `last` and stood before: its length, what followed it.

    It stood there if it ended before `root`, so that what followed is at `root` at the latest. Of
    equally long ones the latest counts; 0 and -1 if there is none.

    Parameters
    ----------
    tokens : int64[n]
        Text up to its root, then the path below it.
    root, last : int
        Places in it; ``root <= last``.
    """
    best, follower = 0, -1
    for end in range(root - 1, max(root - 1 - WINDOW, -1), -1):
        if tokens[end] != tokens[last]:
            continue
        length, most = 1, min(LONGEST_RUN, end + 1)
        while length < most and tokens[end - length] == tokens[last - length]:
            length += 1
        if length > best:
            best, follower = length, tokens[end + 1]
            if best == LONGEST_RUN:
                break
    return best, follower


@kernel
def find_repeats(
    text: NDArray[np.int64],
    tokens: NDArray[np.int64],
    parents: NDArray[np.int32],
    out: NDArray[np.int8],
) -> None:
    """Write into out [N] what the text so far says of each node of a tree.

    n if the longest run that ends at its parent, of n tokens, stood in the text before and was
    followed by the node's token; -n if by another; 0 if no run stood there, and at the root.

    Parameters
    ----------
    text : int64[T]
        Committed tokens before the root.
    """
    num_nodes, root = len(parents), len(text)
    depths = np.zeros(num_nodes, np.int64)
    lengths = np.full(num_nodes, -1)
    followers = np.empty(num_nodes, np.int64)
    path = np.empty(root + num_nodes, np.int64)
    path[:root] = text
    path[root] = tokens[0]
    out[0] = 0
    for node in range(1, num_nodes):
        parent = parents[node]
        depths[node] = depths[parent] + 1
        if lengths[parent] < 0:
            above = parent
            for depth in range(depths[parent], 0, -1):
                path[root + depth] = tokens[above]
                above = parents[above]
            found = longest_run(path, root, root + depths[parent])
            lengths[parent], followers[parent] = found
        agrees = followers[parent] == tokens[node]
        out[node] = lengths[parent] if agrees else -lengths[parent]
