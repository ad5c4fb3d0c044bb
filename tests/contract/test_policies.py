"""Every shipped policy keeps the policy contract."""

from __future__ import annotations

from specfit.core.policy import policies
from specfit.policies import Autoregressive, Eagle3, SpecFit
from specfit.testing.policy_contract import PolicyContract
from tests.contract.shipped import shipped


class TestAutoregressive(PolicyContract):
    make = staticmethod(Autoregressive)


class TestEagle3(PolicyContract):
    make = staticmethod(lambda: Eagle3(depth=4, top_k=3, max_nodes=16))


class TestSpecFit(PolicyContract):
    make = staticmethod(SpecFit)


def test_every_shipped_policy_is_held_to_it() -> None:
    held = {type(contract.make()) for contract in (TestAutoregressive, TestEagle3, TestSpecFit)}
    assert held == shipped(policies)
