"""For each rule of the simulator contract a simulator that breaks only that rule."""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import pytest

from specfit.core.backend import Prefill, Request, Verification
from specfit.core.cache import make_cache
from specfit.core.errors import ContractError
from specfit.core.profile import HardwareProfile
from specfit.core.selection import Selection
from specfit.core.tree import DraftLevel, DraftPlan, DraftTree
from specfit.testing.examples import example_geometry
from specfit.testing.simulator_contract import SimulatorContract, check_simulator
from specfit.testing.toy import ToyBackend, ToyModel


class Sound(ToyBackend):
    """The toy as it is."""


class ChargesPlainSteps(Sound):
    """Takes a microsecond more where nothing was drafted."""

    def verify(self, tree: DraftTree, selection: Selection) -> Verification:
        self._now_s += 1e-6 * (len(tree) == 1)
        return super().verify(tree, selection)


class DraftsForFree(Sound):
    """Does not charge for levels after the first, but where copies are free."""

    def draft_level(self, plan: DraftPlan, tree: DraftTree) -> DraftLevel:
        before = self._now_s
        level = super().draft_level(plan, tree)
        if len(tree) > 1 and self.profile.copy_s > 0.0:
            self._now_s = before
        return level


class LosesExperts(Sound):
    """Drops everything that is resident after each drafted cycle."""

    def commit(
        self, tree: DraftTree, accepted: tuple[int, ...], committed: tuple[int, ...]
    ) -> None:
        super().commit(tree, accepted, committed)
        if len(tree) > 1:
            self.cache.reset()


class RoundsCopiesUp(Sound):
    """No copy takes less than a microsecond."""

    def verify(self, tree: DraftTree, selection: Selection) -> Verification:
        answer = super().verify(tree, selection)
        self._now_s += int(answer.num_misses.sum()) * max(1e-6 - self.profile.copy_s, 0.0)
        return answer


class GrowsTired(Sound):
    """Each simulator prefills a little slower than the one before."""

    count: ClassVar[int] = 0

    def start(self, request: Request) -> Prefill:
        GrowsTired.count += 1
        prefill = super().start(request)
        return replace(prefill, seconds=prefill.seconds + 1e-6 * GrowsTired.count)


class WritesOtherTexts(Sound):
    """The target's token depends on whether there is a draft."""

    def verify(self, tree: DraftTree, selection: Selection) -> Verification:
        answer = super().verify(tree, selection)
        if len(tree) > 1:
            answer.target_tokens[0] = (answer.target_tokens[0] + 1) % 32
        return answer


class StartsWithOtherExperts(Sound):
    """Every second request starts with an empty device."""

    count: ClassVar[int] = 0

    def start(self, request: Request) -> Prefill:
        prefill = super().start(request)
        StartsWithOtherExperts.count += 1
        return prefill

    def residency(self):  # type: ignore[no-untyped-def]
        if StartsWithOtherExperts.count % 2:
            return super().residency()
        return type(super().residency()).nothing(self.geometry)


MUTANTS: list[tuple[str, type[ToyBackend]]] = [
    ("S1", ChargesPlainSteps),
    ("S2", DraftsForFree),
    ("S3", LosesExperts),
    ("S4", RoundsCopiesUp),
    ("S5", GrowsTired),
    ("S6", WritesOtherTexts),
    ("S6", StartsWithOtherExperts),
]


def check_kind(kind: type[ToyBackend]) -> list[str]:
    def make(cache: str, profile: HardwareProfile) -> ToyBackend:
        geometry = example_geometry()
        return kind(ToyModel(geometry), make_cache(cache, geometry), profile)

    return check_simulator(make)


def test_a_sound_simulator_passes() -> None:
    assert check_kind(Sound) == [f"S{i}" for i in range(1, 7)]


@pytest.mark.parametrize(("rule", "kind"), MUTANTS)
def test_the_broken_rule_is_named(rule: str, kind: type[ToyBackend]) -> None:
    with pytest.raises(ContractError) as error:
        check_kind(kind)
    assert error.value.rule == rule, str(error.value)


def test_every_rule_has_a_mutant() -> None:
    assert {rule for rule, _ in MUTANTS} == set(SimulatorContract.rules())
