"""Recorded cycles of the bundled model as search problems.

`recorded_cycles.npz` was made by ``python -m benchmarks.search_recorded``: drafted trees of real
texts, calibrated path probabilities, predicted and true routing, costs at three cache sizes.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core.cost import CostTerms
from specfit.core.search import ProbPricer, RoutingPricer, SearchProblem

FILE = Path(__file__).parent / "recorded_cycles.npz"
NAMES = tuple(f"{share}_{i}" for share in ("25%", "50%", "75%") for i in range(2))


@cache
def arrays() -> dict[str, NDArray[Any]]:
    with np.load(FILE) as stored:
        return dict(stored)


def predicted(name: str, num_nodes: int) -> NDArray[np.float32]:
    """Predicted routing of the first nodes, float32[N, L, E]."""
    return arrays()[f"{name}_probs"][:num_nodes].astype(np.float32)


def problem(name: str, num_nodes: int, *, hard: bool) -> SearchProblem:
    """The first nodes of a recorded tree, with the true routing or with predictions."""
    a = {key.removeprefix(f"{name}_"): value for key, value in arrays().items() if name in key}
    weight_s = a["weight_s"].astype(np.float64)
    terms = CostTerms(a["draft_s"], a["tau_s"][: num_nodes + 1], weight_s)
    parents, path_probs = a["parents"][:num_nodes], a["path_probs"][:num_nodes]
    pricer: Any = RoutingPricer() if hard else ProbPricer()
    pricer.start(weight_s)
    routing = a["routing"][:num_nodes].astype(np.int16)
    pricer.extend(parents, path_probs, routing if hard else predicted(name, num_nodes))
    return SearchProblem(parents, path_probs, pricer.demand(), terms, len(a["draft_s"]) - 1)
