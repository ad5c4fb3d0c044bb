"""For each rule of the cache contract a cache that breaks only that rule."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

from specfit.core.cache import ExpertCache, LoadPlan, Lru
from specfit.core.cache.base import IdArray
from specfit.core.errors import CapacityError, ContractError
from specfit.testing.cache_contract import ExpertCacheContract, belady_misses, check_cache


class Hoards(Lru):
    """Gives the first expert of a load a slot that it has lent already."""

    def request(self, layer: int, experts: IdArray) -> LoadPlan:
        plan = super().request(layer, experts)
        if len(plan.evictions):
            self._slots[layer, plan.evictions[0]] = plan.load_slots[0]
        return plan


class NoNumbers(Lru):
    def request(self, layer: int, experts: IdArray) -> LoadPlan:
        if len(experts) > self.capacity:
            raise CapacityError("too many", needed=0, capacity=0)
        return super().request(layer, experts)


class EvictsTheNeeded(Lru):
    def request(self, layer: int, experts: IdArray) -> LoadPlan:
        plan = super().request(layer, experts)
        return replace(plan, evictions=plan.loads[:1])


class NamesOtherSlots(Lru):
    def request(self, layer: int, experts: IdArray) -> LoadPlan:
        plan = super().request(layer, experts)
        return replace(plan, load_slots=plan.load_slots[::-1])


class LoadsAgain(Lru):
    """Copies a needed expert that was resident, and says that it was missing."""

    def request(self, layer: int, experts: IdArray) -> LoadPlan:
        plan = super().request(layer, experts)
        if not len(plan.hits):
            return plan
        return LoadPlan(
            layer,
            plan.hits[1:],
            plan.hit_slots[1:],
            np.append(plan.hits[:1], plan.loads),
            np.append(plan.hit_slots[:1], plan.load_slots),
            plan.evictions,
        )


class DropsTheUnneeded(Lru):
    """Evicts a resident at each load though there is room."""

    is_stack_algorithm = False

    def _victims(self, layer: int, experts: IdArray, num_loads: int) -> IdArray:
        victims = super()._victims(layer, experts, num_loads)
        idle = np.setdiff1d(np.flatnonzero(self._slots[layer] >= 0), experts)
        return victims if len(victims) else idle[:1]


class FirstIn(Lru):
    """First in, first out, and says that it were a stack algorithm."""

    def choose_victims(self, layer: int, candidates: IdArray, count: int) -> IdArray:
        order = np.argsort(self._loaded[layer, candidates], kind="stable")
        return np.sort(candidates[order[:count]])


class Counts(Lru):
    """Loads an expert in secret before it is needed for the third time."""

    is_stack_algorithm = False

    def waves(self, layer: int, experts: IdArray) -> Iterator[LoadPlan]:
        self.seen = getattr(self, "seen", 0) + 1
        if len(experts) == 1 and self.capacity < self.num_experts and self.seen > 60:
            super().request(layer, experts)
        yield from super().waves(layer, experts)


class Chance(Lru):
    """Evicts by a generator that `reset` does not restart."""

    is_stack_algorithm = False

    def choose_victims(self, layer: int, candidates: IdArray, count: int) -> IdArray:
        generator = self.__dict__.setdefault("generator", np.random.default_rng(0))
        return np.sort(generator.choice(candidates, count, replace=False))


MUTANTS: list[tuple[str, Callable[[], ExpertCache]]] = [
    ("E1", Hoards),
    ("E2", NoNumbers),
    ("E2", EvictsTheNeeded),
    ("E3", NamesOtherSlots),
    ("E4", LoadsAgain),
    ("E5", DropsTheUnneeded),
    ("E6", FirstIn),
    ("E7", Counts),
    ("E8", Chance),
]


def test_a_sound_cache_passes() -> None:
    assert check_cache(Lru) == [f"E{i}" for i in range(1, 9)]


@pytest.mark.parametrize(("rule", "make"), MUTANTS)
def test_the_broken_rule_is_named(rule: str, make: Callable[[], ExpertCache]) -> None:
    with pytest.raises(ContractError) as error:
        check_cache(make)
    assert error.value.rule == rule, str(error.value)


def test_every_rule_has_a_mutant() -> None:
    assert {rule for rule, _ in MUTANTS} == set(ExpertCacheContract.rules())


def test_belady_on_a_sequence_one_can_follow() -> None:
    """0 1 2 miss; 0 hits (1 left, needed last); 1 misses (2 left, needed last); 0, 1 hit."""
    assert belady_misses([0, 1, 2, 0, 1, 0, 1], capacity=2) == 4
