"""What a verification commits, by going through every way it can end: obvious and slow."""

from __future__ import annotations

import numpy as np

from specfit.core.selection import Selection


def expected_committed(selection: Selection, cond_probs: np.ndarray, node: int = 0) -> float:
    """Return the expected tokens committed from `node` on, itself not counted.

    Its target token is that of one selected child, with the child's probability, or of none: then
    it is the last one committed.
    """
    children = [c for c in selection.tree.children(node) if selection.mask[c]]
    none = 1.0 - sum(cond_probs[c] for c in children)
    further = (cond_probs[c] * (1 + expected_committed(selection, cond_probs, c)) for c in children)
    return float(none * 1 + sum(further))
