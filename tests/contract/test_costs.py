"""Every shipped cost model keeps the cost contract."""

from __future__ import annotations

from dataclasses import replace

from specfit.core.cost import ProfileCost
from specfit.testing.cost_contract import CostModelContract
from specfit.testing.examples import example_profile


class TestProfileCost(CostModelContract):
    make = staticmethod(lambda: ProfileCost(example_profile()))


class TestProfileCostWithoutReads(CostModelContract):
    make = staticmethod(lambda: ProfileCost(replace(example_profile(), resident_expert_s=0.0)))
