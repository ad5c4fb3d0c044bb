"""Acceptance models: how likely a draft node is to be accepted, one method a file."""

from specfit.policies.acceptance.adaptive import Adaptive
from specfit.policies.acceptance.depth_rank import DepthRank
from specfit.policies.acceptance.identity import Identity
from specfit.policies.acceptance.isotonic import Isotonic
from specfit.policies.acceptance.logistic import Logistic
from specfit.policies.acceptance.online import Online
from specfit.policies.acceptance.temperature import Temperature

__all__ = ["Adaptive", "DepthRank", "Identity", "Isotonic", "Logistic", "Online", "Temperature"]
