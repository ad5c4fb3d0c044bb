"""Numbers of curves that repetition leaves as they are."""

from __future__ import annotations

import numpy as np

from specfit.policies.acceptance._kernels import NUM_LINES
from specfit.policies.acceptance._repeats import LONGEST_RUN


def indifferent(continuations: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return lines and continuations, float64[M, D, C] here, that no run of tokens moves."""
    lines = np.tile([0.0, 1.0], (len(continuations), NUM_LINES, 1))
    return lines, np.repeat(continuations[:, None], LONGEST_RUN + 1, axis=1)
