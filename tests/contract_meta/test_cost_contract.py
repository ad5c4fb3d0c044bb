"""For each rule of the cost contract a cost model that breaks only that rule."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from specfit.core.cost import CostModel, CostTerms, CycleCost, ProfileCost
from specfit.core.errors import ContractError
from specfit.core.experts import Residency
from specfit.testing.cost_contract import CostModelContract, check_cost_model
from specfit.testing.examples import example_profile


@dataclass(frozen=True)
class Sound(ProfileCost):
    """A profile's cost."""


class ForgetsAPart(Sound):
    def cycle_cost(self, *args: Any, **kwargs: Any) -> CycleCost:
        cost = super().cycle_cost(*args, **kwargs)
        return replace(cost, stall_s=cost.stall_s / 2)


class LikesWideTrees(Sound):
    """The whole layer together is cheaper than most of it; terms say so too."""

    def cycle_cost(
        self, num_nodes: int, activation: NDArray[np.float64], **kwargs: Any
    ) -> CycleCost:
        cost = super().cycle_cost(num_nodes, activation, **kwargs)
        return replace(cost, compute_s=cost.compute_s - min(num_nodes, 8) * 3e-4)

    def terms(self, residency: Residency, context_len: int) -> CostTerms:
        return _Discounted(*_parts(super().terms(residency, context_len)))


class _Discounted(CostTerms):
    def pass_s(self, num_nodes: int, activation: NDArray[np.float64]) -> float:
        return super().pass_s(num_nodes, activation) - min(num_nodes, 8) * 3e-4


def _parts(terms: CostTerms) -> tuple[Any, ...]:
    return terms.draft_s, terms.tau_s, terms.weight_s


class ChargesResidents(Sound):
    def terms(self, residency: Residency, context_len: int) -> CostTerms:
        terms = super().terms(residency, context_len)
        return replace(terms, weight_s=np.where(residency.mask, 5e-3, 1e-3))


class GrowsTired(Sound):
    """Each answer of one instance is a little dearer than the one before."""

    def terms(self, residency: Residency, context_len: int) -> CostTerms:
        count = self.__dict__.get("count", 0)
        self.__dict__["count"] = count + 1
        terms = super().terms(residency, context_len)
        return replace(terms, tau_s=terms.tau_s * (1 + count // 2 * 1e-6))


class DraftsInPlainSteps(Sound):
    def cycle_cost(self, *args: Any, **kwargs: Any) -> CycleCost:
        cost = super().cycle_cost(*args, **kwargs)
        if kwargs["levels"] == 0:  # the total stays what the terms say
            return replace(cost, draft_s=1e-6, compute_s=cost.compute_s - 1e-6)
        return cost


class CountsInMegabytes(Sound):
    def cycle_cost(self, *args: Any, **kwargs: Any) -> CycleCost:
        return replace(super().cycle_cost(*args, **kwargs), h2d_s=self.profile.expert_bytes / 1e9)


PROFILE = example_profile()
MUTANTS: list[tuple[str, Callable[[], CostModel]]] = [
    ("C1", lambda: ForgetsAPart(PROFILE)),
    ("C2", lambda: LikesWideTrees(PROFILE)),
    ("C3", lambda: ChargesResidents(PROFILE)),
    ("C4", lambda: GrowsTired(PROFILE)),
    ("C5", lambda: DraftsInPlainSteps(PROFILE)),
    ("C7", lambda: CountsInMegabytes(PROFILE)),
]


def test_a_sound_cost_model_passes() -> None:
    assert check_cost_model(lambda: Sound(PROFILE)) == ["C1", "C2", "C3", "C4", "C5", "C7"]


@pytest.mark.parametrize(("rule", "make"), MUTANTS)
def test_the_broken_rule_is_named(rule: str, make: Callable[[], CostModel]) -> None:
    with pytest.raises(ContractError) as error:
        check_cost_model(make)
    assert error.value.rule == rule, str(error.value)


def test_every_rule_has_a_mutant() -> None:
    assert {rule for rule, _ in MUTANTS} == set(CostModelContract.rules())
