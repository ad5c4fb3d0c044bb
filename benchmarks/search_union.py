"""What pricing loses against the exact expected union, as the search sees it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.search_instances import Instance, draw
from specfit.core.cost import CostTerms
from specfit.core.search import exact, exact_union
from specfit.core.search.union import ExpectedUnion

NUM_NODES = 31
"""Of the trees that are compared: the exact union is slow."""


def draw_cheap(seed: int, resident: float) -> Instance:
    """Draw an instance whose copies take a tenth of their time elsewhere in this benchmark.

    Else few nodes are worth it, and a chain loses nothing.
    """
    instance = draw(seed, NUM_NODES, resident)
    terms = instance.terms
    return replace(instance, terms=CostTerms(terms.draft_s, terms.tau_s, 0.1 * terms.weight_s))


def loss_of_pricing(instance: Instance) -> tuple[float, str]:
    """Return the part of the best rate that the priced selection loses, and the status of the best.

    Both selections are charged the exact expected union under independence.
    """
    problem = instance.problem(hard=False)
    best = exact_union(problem, instance.probs, max_steps=200)
    priced = exact(problem).mask
    weighted = instance.terms.weight_s > 0
    union = ExpectedUnion(
        problem, instance.probs[:, weighted].astype(np.float64), instance.terms.weight_s[weighted]
    )
    rate = float(problem.path_probs[priced].sum()) / union.seconds(priced)
    return 1.0 - rate / best.objective, best.status
