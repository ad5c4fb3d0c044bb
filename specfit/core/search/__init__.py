"""The exact search: which part of a draft tree to verify, and whether to draft more.

Knows trees, prices and seconds; knows nothing of predictors, caches or models. `exact` is the
reference that every other rule is measured against.
"""

from specfit.core.search.demand import Demand
from specfit.core.search.exact import exact
from specfit.core.search.levels import LevelSearch
from specfit.core.search.pricing import ProbPricer, RoutingPricer
from specfit.core.search.problem import Price, SearchProblem, SearchResult
from specfit.core.search.stop import StopDecision, should_draft
from specfit.core.search.warm import warm_up

__all__ = [
    "Demand",
    "LevelSearch",
    "Price",
    "ProbPricer",
    "RoutingPricer",
    "SearchProblem",
    "SearchResult",
    "StopDecision",
    "exact",
    "should_draft",
    "warm_up",
]
