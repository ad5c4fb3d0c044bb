"""The exact search: which part of a draft tree to verify, and whether to draft more.

Knows trees, prices and seconds; knows nothing of predictors, caches or models. `exact` is the
reference that every other rule is measured against.
"""

from specfit.core.search.certificate import Certificate, certify
from specfit.core.search.demand import Demand
from specfit.core.search.exact import exact
from specfit.core.search.greedy import evaluate, greedy
from specfit.core.search.levels import LevelSearch
from specfit.core.search.monotone import exact_monotone
from specfit.core.search.pricing import ProbPricer, RoutingPricer
from specfit.core.search.problem import Price, SearchProblem, SearchResult
from specfit.core.search.running import RunningRate
from specfit.core.search.stop import StopDecision, should_draft
from specfit.core.search.union import exact_union
from specfit.core.search.warm import warm_up

__all__ = [
    "Certificate",
    "Demand",
    "LevelSearch",
    "Price",
    "ProbPricer",
    "RoutingPricer",
    "RunningRate",
    "SearchProblem",
    "SearchResult",
    "StopDecision",
    "certify",
    "evaluate",
    "exact",
    "exact_monotone",
    "exact_union",
    "greedy",
    "should_draft",
    "warm_up",
]
