"""Compile every kernel of the search before the clock runs."""

from __future__ import annotations

import numpy as np

from specfit.core.cost import CostTerms
from specfit.core.search.levels import LevelSearch
from specfit.core.search.pricing import ProbPricer, RoutingPricer


def warm_up() -> None:
    """Run every kernel once on a tiny tree, so that later calls do not wait for the compiler.

    The compiled code is kept on disk; only the first call on a machine takes long.
    """
    weight_s = np.ones((1, 2))
    parents, path_probs = np.array([-1, 0, 0], np.int32), np.array([1.0, 0.5, 0.25])
    probs = np.full((3, 1, 2), 0.5, np.float32)
    routing = np.array([[[0]], [[1]], [[1]]], np.int16)
    line = np.array([0.0, 1.0, 1.0, 1.0])
    cases = ((ProbPricer(), probs, line), (RoutingPricer(), routing, line))
    for pricer, predicted, tau_s in cases:
        search = LevelSearch(pricer)
        search.start(CostTerms(np.zeros(4), tau_s, weight_s))
        predicted.setflags(write=False)
        search.add_level(parents[:1], path_probs[:1], predicted[:1])
        search.add_level(parents, path_probs, predicted[1:].copy())
        search.should_draft(np.ones(2), np.ones(3, bool))
        search.start(CostTerms(np.zeros(4), tau_s, weight_s))
        search.advance(parents[:1], path_probs[:1], predicted[:1], np.ones(2), np.ones(1, bool))
    cliff = CostTerms(np.zeros(4), np.array([0.0, 1.0, 1.0, 2.0]), np.zeros((1, 2)))
    search = LevelSearch(ProbPricer())
    search.start(cliff)
    search.add_level(parents, path_probs, None)
    search.best()
