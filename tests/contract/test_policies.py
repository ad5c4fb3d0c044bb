"""Every shipped policy keeps the policy contract; the longer ones with small trees."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from specfit.core.policy import Policy, policies
from specfit.policies import (
    AdaEDL,
    Autoregressive,
    Cascade,
    Chain,
    Ddd,
    DraftExpert,
    DySpec,
    Eagle3,
    EcoSpec,
    Evict,
    MoESpeQ,
    OptTree,
    ReferenceExperts,
    ReferenceTruth,
    S2MoE,
    S2MoEStatic,
    Sequoia,
    SpecExec,
    SpecFit,
    Svip,
    Talon,
    Yggdrasil,
)
from specfit.testing.policy_contract import PolicyContract
from tests.contract.shipped import shipped

RULES = [name for name in dir(PolicyContract) if name.startswith("test_")]
SMALL: tuple[Callable[[], Policy], ...] = (
    AdaEDL,
    Autoregressive,
    lambda: Cascade(trial_cycles=1, set_cycles=2, refresh=5),
    Chain,
    lambda: Ddd(depth=4, top_k=3, max_nodes=16, first_check=1, check_every=1),
    DraftExpert,
    lambda: DySpec(depth=4, top_k=3, max_nodes=16),
    lambda: Eagle3(depth=4, top_k=3, max_nodes=16),
    EcoSpec,
    lambda: Evict(depth=3, top_k=3, max_nodes=16),
    MoESpeQ,
    lambda: OptTree(depth=4, top_k=3, max_nodes=16),
    ReferenceExperts,
    ReferenceTruth,
    lambda: S2MoE(top_k=3, expert_scale=0.1),
    lambda: S2MoEStatic(expert_scale=0.2),
    lambda: Sequoia(depth=4, top_k=3, max_nodes=16),
    lambda: SpecExec(depth=4, top_k=3, max_nodes=16),
    SpecFit,
    Svip,
    lambda: Talon(depth=4, top_k=3, max_nodes=16),
    lambda: Yggdrasil(depth=4, top_k=3, max_nodes=16),
)


@pytest.mark.parametrize("make", SMALL, ids=lambda make: type(make()).__name__)
@pytest.mark.parametrize("rule", RULES)
def test_the_contract_is_kept(make: Callable[[], Policy], rule: str) -> None:
    contract = PolicyContract()
    contract.make = make  # type: ignore[method-assign]
    getattr(contract, rule)()


def test_every_shipped_policy_is_held_to_it() -> None:
    assert {type(make()) for make in SMALL} == shipped(policies)
