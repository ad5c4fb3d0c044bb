"""Shipped policies, one method a file; importing this package registers them all."""

from specfit.policies.autoregressive import Autoregressive
from specfit.policies.eagle3 import Eagle3
from specfit.policies.specfit import SpecFit

__all__ = ["Autoregressive", "Eagle3", "SpecFit"]
