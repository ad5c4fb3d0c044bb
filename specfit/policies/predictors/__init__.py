"""Coverage predictors: how likely a node is to be routed to each expert, one method a file."""

from specfit.policies.predictors.token_table import TokenTable
from specfit.policies.predictors.uniform import Uniform

__all__ = ["TokenTable", "Uniform"]
