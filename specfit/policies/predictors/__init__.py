"""Coverage predictors: how likely a node is to be routed to each expert, one method a file."""

from specfit.policies.predictors.decayed_frequency import DecayedFrequency
from specfit.policies.predictors.ensemble import Ensemble
from specfit.policies.predictors.hidden_probe import HiddenProbe
from specfit.policies.predictors.previous_token import PreviousToken
from specfit.policies.predictors.routing_probe import RoutingProbe
from specfit.policies.predictors.target_routers import TargetRouters
from specfit.policies.predictors.token_table import TokenTable
from specfit.policies.predictors.uniform import Uniform

__all__ = [
    "DecayedFrequency",
    "Ensemble",
    "HiddenProbe",
    "PreviousToken",
    "RoutingProbe",
    "TargetRouters",
    "TokenTable",
    "Uniform",
]
