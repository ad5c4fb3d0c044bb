"""Every shipped cost model keeps the cost contract."""

from __future__ import annotations

from dataclasses import replace

from specfit.core.cost import ProfileCost, costs
from specfit.testing.cost_contract import CostModelContract
from specfit.testing.examples import example_profile
from tests.contract.shipped import shipped


class TestProfileCost(CostModelContract):
    make = staticmethod(lambda: ProfileCost(example_profile()))


class TestProfileCostWithoutReads(CostModelContract):
    make = staticmethod(lambda: ProfileCost(replace(example_profile(), resident_expert_s=0.0)))


class TestProfileCostWithLayersOverlapped(CostModelContract):
    make = staticmethod(lambda: ProfileCost(replace(example_profile(), overlap="layer")))


class TestProfileCostResidentFirst(CostModelContract):
    make = staticmethod(lambda: ProfileCost(replace(example_profile(), overlap="resident")))


class TestProfileCostPrefetched(CostModelContract):
    make = staticmethod(lambda: ProfileCost(replace(example_profile(), overlap="pass")))


class TestProfileCostOfATable(CostModelContract):
    make = staticmethod(
        lambda: ProfileCost(replace(example_profile(), verify_table_s=(0.01, 0.01, 0.03)))
    )


def test_every_shipped_model_is_held_to_it() -> None:
    assert shipped(costs) == {ProfileCost}
