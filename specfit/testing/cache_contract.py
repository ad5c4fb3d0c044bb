"""What every expert cache rule keeps: capacity, residency, counts, determinism."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from specfit.core.cache.base import ExpertCache, LoadPlan
from specfit.core.errors import CapacityError
from specfit.core.experts import ModelGeometry
from specfit.testing.contract import Contract, check, require
from specfit.testing.examples import example_geometry

Needs = list[NDArray[np.int64]]

CAPACITIES = (2, 5, 11)
"""Slots a layer on which the rules are tried; a layer has 12 experts."""

BELADYS_ANOMALY = (1, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5)
"""Requests on which first-in-first-out misses 9 times with 3 slots and 10 times with 4."""


class ExpertCacheContract(Contract):
    """E1 to E8. ``make`` returns the rule, not yet allocated."""

    def test_e1_never_over_capacity(self) -> None:
        """Residents never outnumber the slots, and no two share one."""
        for cache, _, _ in self._passes():
            for layer in range(cache.num_layers):
                slots = cache.slot_of(layer)
                taken = slots[slots >= 0]
                require(len(taken) <= cache.capacity, "E1", f"{len(taken)} of {cache.capacity}")
                require(len(set(taken.tolist())) == len(taken), "E1", "two experts share a slot")
                require((taken < cache.capacity).all(), "E1", f"slot {taken.max()} does not exist")

    def test_e2_a_needed_expert_is_not_evicted(self) -> None:
        """A request evicts none of its own experts; too many at once is a `CapacityError`."""
        for _, needed, plans in self._passes():
            for plan in plans:
                held = {*plan.hits.tolist(), *plan.loads.tolist()}
                lost = held & set(plan.evictions.tolist())
                require(not lost, "E2", f"{sorted(lost)} of {needed.tolist()} evicted while needed")
        cache = self._allocated(2)
        try:
            cache.request(0, np.arange(3))
        except CapacityError as error:
            require((error.needed, error.capacity) == (3, 2), "E2", "the error lacks the numbers")
        else:
            require(False, "E2", "3 experts in 2 slots must raise CapacityError")

    def test_e3_what_was_requested_is_resident(self) -> None:
        """Between a wave and the next its experts are resident, in the slots that it named."""
        for capacity in CAPACITIES:
            cache = self._allocated(capacity)
            for needed in _needs(capacity):
                for plan in cache.waves(1, needed):
                    experts = np.concatenate([plan.hits, plan.loads])
                    slots = np.concatenate([plan.hit_slots, plan.load_slots])
                    ok = np.array_equal(cache.slot_of(1)[experts], slots) and (slots >= 0).all()
                    require(ok, "E3", f"{experts.tolist()} are not in slots {slots.tolist()}")

    def test_e4_hits_and_misses_are_the_requests(self) -> None:
        """Each needed expert is a hit or a load, once; loads and evictions change residency."""
        for capacity in CAPACITIES:
            cache = self._allocated(capacity)
            for needed in _needs(capacity):
                before = set(np.flatnonzero(cache.residency().mask[1]).tolist())
                plans = list(cache.waves(1, needed))
                served = np.concatenate([np.concatenate([p.hits, p.loads]) for p in plans])
                same = np.array_equal(np.sort(served), needed)
                require(same, "E4", f"{needed.tolist()} was served as {served.tolist()}")
                hits = {h for p in plans for h in p.hits.tolist()}
                require(hits == before & set(needed.tolist()), "E4", f"hits {sorted(hits)}")
                for plan in plans:
                    before = before - set(plan.evictions.tolist()) | set(plan.loads.tolist())
                after = set(np.flatnonzero(cache.residency().mask[1]).tolist())
                require(after == before, "E4", f"{sorted(after)} resident, not {sorted(before)}")

    def test_e5_only_compulsory_misses_where_everything_fits(self) -> None:
        """With a slot for every expert each is loaded once, in each pass if nothing is kept."""
        cache = self._allocated(12)
        seen: set[int] = set()
        for needed in _needs(12):
            (plan,) = cache.waves(0, needed)
            expected = sorted(set(needed.tolist()) - seen)
            require(plan.loads.tolist() == expected, "E5", f"loads {plan.loads}, not {expected}")
            seen |= set(needed.tolist())
            if cache.keeps_experts:
                cache.end_pass()

    def test_e6_more_capacity_never_more_misses(self) -> None:
        """For a rule that declares `is_stack_algorithm`."""
        if not self._allocated(2).is_stack_algorithm:
            return
        # With waves the requests would depend on the capacity, so at most 2 experts at once.
        for needs in (_needs(2, most=2), [np.array([expert]) for expert in BELADYS_ANOMALY]):
            misses = [_misses(self._allocated(c), needs) for c in range(2, 13)]
            falls = all(a >= b for a, b in pairwise(misses))
            require(falls, "E6", f"misses by capacity 2 to 12: {misses}")

    def test_e7_no_rule_beats_belady(self) -> None:
        """On requests of one expert; fewer misses than the optimum means some are not counted."""
        sequence = np.random.default_rng(7).zipf(1.3, 300) % 12
        for capacity in CAPACITIES:
            misses = _misses(self._allocated(capacity), [np.array([e]) for e in sequence])
            best = belady_misses(sequence.tolist(), capacity)
            require(misses >= best, "E7", f"{misses} misses; the optimum has {best}")

    def test_e8_deterministic(self) -> None:
        """Equal requests give equal answers: a second cache, a copy half way, and after `reset`."""
        for capacity in CAPACITIES:
            needs = _needs(capacity)
            cache = self._allocated(capacity)
            first = _serve(cache, needs)
            require(_serve(self._allocated(capacity), needs) == first, "E8", "two caches differ")
            cache.reset()
            require(_serve(cache, needs) == first, "E8", "reset does not forget")
            cache.reset()
            _serve(cache, needs[:20])
            twin = copy.deepcopy(cache)
            same = _serve(twin, needs[20:]) == _serve(cache, needs[20:])
            require(same, "E8", "a copy behaves differently")

    def _allocated(self, capacity: int) -> ExpertCache:
        cache: ExpertCache = self.make()
        cache.allocate(_geometry(), capacity)
        return cache

    def _passes(self) -> list[tuple[ExpertCache, NDArray[np.int64], list[LoadPlan]]]:
        """Return the cache after each pass over both layers, and what the pass did in layer 1."""
        seen = []
        for capacity in CAPACITIES:
            cache = self._allocated(capacity)
            for needed in _needs(capacity):
                list(cache.waves(0, needed[:1]))
                plans = list(cache.waves(1, needed))
                seen.append((copy.deepcopy(cache), needed, plans))
                cache.end_pass()
        return seen


def check_cache(make: Callable[[], ExpertCache]) -> list[str]:
    """Check a cache rule against its contract; see `ExpertCacheContract`."""
    return check(ExpertCacheContract, make)


def belady_misses(sequence: Sequence[int], capacity: int) -> int:
    """Return the fewest misses of single requests: evict what is needed again last."""
    resident: set[int] = set()
    misses = 0
    for i, expert in enumerate(sequence):
        if expert in resident:
            continue
        misses += 1
        if len(resident) == capacity:
            later = sequence[i + 1 :]
            resident.remove(
                max(resident, key=lambda e: later.index(e) if e in later else len(sequence))
            )
        resident.add(expert)
    return misses


def _geometry() -> ModelGeometry:
    return example_geometry(num_layers=2, num_experts=12)


def _needs(seed: int, most: int = 8) -> Needs:
    """Return what 40 passes need of a layer, from one expert to more than there are slots."""
    generator = np.random.default_rng(seed)
    popularity = 1.0 / np.arange(1, 13)
    return [
        np.sort(generator.choice(12, int(size), replace=False, p=popularity / popularity.sum()))
        for size in generator.integers(1, most + 1, 40)
    ]


def _misses(cache: ExpertCache, needs: Needs) -> int:
    return sum(len(plan.loads) for needed in needs for plan in cache.waves(0, needed))


def _serve(cache: ExpertCache, needs: Needs) -> list[list[list[int]]]:
    served = []
    for needed in needs:
        for p in cache.waves(0, needed):
            parts = (p.hits, p.hit_slots, p.loads, p.load_slots, p.evictions)
            served.append([part.tolist() for part in parts])
        cache.end_pass()
    return served
