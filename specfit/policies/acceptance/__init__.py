"""Acceptance models: how likely a draft node is to be accepted, one method a file."""

from specfit.policies.acceptance.adaptive import Adaptive
from specfit.policies.acceptance.depth_rank import DepthRank
from specfit.policies.acceptance.identity import Identity

__all__ = ["Adaptive", "DepthRank", "Identity"]
