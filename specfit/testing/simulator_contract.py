"""What every simulator keeps: seconds that follow from the profile and from what was done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from specfit.core.backend import Backend, Request
from specfit.core.cost import ProfileCost
from specfit.core.decode import CycleRecord, DecodeLoop, DecodeResult
from specfit.core.experts import ExpertCoverage
from specfit.core.policy import Policy
from specfit.core.profile import HardwareProfile
from specfit.core.tree import DraftPlan
from specfit.testing._fixed_policies import FirstNodes, Plain
from specfit.testing.contract import Contract, check, require
from specfit.testing.examples import DrafterAcceptance, UniformPredictor, example_profile

RELATIVE = 1e-9
"""Differences that rounding explains."""


class SimulatorContract(Contract):
    """S1 to S6. ``make(cache, profile)`` returns a backend whose seconds come from the profile.

    Copies are charged in full: nothing of them is hidden behind compute.
    """

    request: ClassVar[Request] = Request(
        tuple(np.random.default_rng(1).integers(0, 32, 120).tolist()), 24
    )
    """What to decode; its prompt needs every expert, so that a full cache starts warm."""

    plan: ClassVar[DraftPlan] = DraftPlan(3, 3, 16)
    """A plan that the simulator can answer."""

    @staticmethod
    def make(cache: str = "lru:50%", profile: HardwareProfile | None = None) -> Any:
        """Return a fresh simulator."""
        raise NotImplementedError("set make = staticmethod(lambda cache, profile: ...)")

    def test_s1_a_plain_step_with_all_resident(self) -> None:
        """Takes the pass, one node and the resident experts, exactly, token after token."""
        result, p = self._run(Plain(), "lru:100%"), example_profile()
        warm = [c for c in result.cycles if not c.outcome.verification.num_misses.any()]
        require(warm, "S1", "no step had all of its experts resident; give a longer prompt")
        for cycle in warm:
            answer = cycle.outcome.verification
            experts_s = int(answer.num_hits.sum()) * p.resident_expert_s
            step_s = p.verify_fixed_s + p.verify_node_s + experts_s
            _require_close(cycle.timings.cycle_s, step_s, "S1", "a plain step")

    def test_s2_the_parts_sum_to_the_whole(self) -> None:
        """A drafted cycle takes its levels, its nodes, its experts and its copies."""
        p = example_profile()
        for cache in ("none", "lru:50%"):
            for cycle in self._drafted(cache):
                levels, answer = cycle.outcome.cycle.levels, cycle.outcome.verification
                misses = int(answer.num_misses.sum())
                needed = misses + int(answer.num_hits.sum())
                draft_s = p.first_level_s + (levels - 1) * p.level_s
                compute_s = p.verify_fixed_s + cycle.num_verified * p.verify_node_s
                whole_s = draft_s + compute_s + needed * p.resident_expert_s + misses * p.copy_s
                _require_close(cycle.timings.cycle_s, whole_s, "S2", "a drafted cycle")

    def test_s3_what_fits_is_copied_once(self) -> None:
        """With a slot for every expert nothing is copied that was needed before."""
        result = self._run(FirstNodes(self.plan), "lru:100%")
        num_experts = self.make("lru:100%", example_profile()).geometry.num_experts
        seen = ExpertCoverage(result.prefill.routing, num_experts).mask.any(axis=0)  # [L, E]
        for number, cycle in enumerate(result.cycles):
            answer = cycle.outcome.verification
            needed = ExpertCoverage(answer.routing, num_experts).mask.any(axis=0)
            fresh, copied = int((needed & ~seen).sum()), int(answer.num_misses.sum())
            require(copied == fresh, "S3", f"cycle {number} copies {copied}, new are {fresh}")
            seen |= needed

    def test_s4_free_copies_make_the_cache_irrelevant(self) -> None:
        """Time is then draft levels, passes and nodes: dense speculative decoding."""
        fast = replace(example_profile(), h2d_bandwidth_bytes_per_s=1e300, resident_expert_s=0.0)
        for cache in ("none", "lru:100%"):
            for cycle in self._drafted(cache, fast):
                levels = cycle.outcome.cycle.levels
                dense_s = fast.first_level_s + (levels - 1) * fast.level_s + fast.verify_fixed_s
                dense_s += cycle.num_verified * fast.verify_node_s
                where = f"a cycle with free copies and cache {cache}"
                _require_close(cycle.timings.cycle_s, dense_s, "S4", where)

    def test_s5_equal_runs_equal_seconds(self) -> None:
        """A second simulator says the same seconds, prefill and cycles."""
        seconds = []
        for _ in range(2):
            result = self._run(FirstNodes(self.plan), "lru:50%")
            seconds.append([result.prefill.seconds, *(c.timings.cycle_s for c in result.cycles)])
        require(seconds[0] == seconds[1], "S5", "a second simulator says other seconds")

    def test_s6_policies_see_the_same_world(self) -> None:
        """Two policies get the same text, and start with the same experts resident."""
        plain, drafted = (
            self._run(Plain(), "lru:50%"),
            self._run(FirstNodes(self.plan), "lru:50%"),
        )
        same = plain.tokens == drafted.tokens
        require(same, "S6", f"text {plain.tokens}, under another policy {drafted.tokens}")
        one, other = plain.cycles[0].outcome.cycle, drafted.cycles[0].outcome.cycle
        same = np.array_equal(one.residency.mask, other.residency.mask)
        require(same, "S6", "two policies start with other experts resident")

    def _drafted(self, cache: str, profile: HardwareProfile | None = None) -> list[CycleRecord]:
        result = self._run(FirstNodes(self.plan), cache, profile)
        return [cycle for cycle in result.cycles if cycle.outcome.cycle.levels > 0]

    def _run(
        self, policy: Policy, cache: str, profile: HardwareProfile | None = None
    ) -> DecodeResult:
        profile = profile or example_profile()
        backend: Backend = self.make(cache, profile)
        inputs = UniformPredictor(backend.geometry), DrafterAcceptance()
        return DecodeLoop(backend, policy, ProfileCost(profile), *inputs).run(self.request)


def check_simulator(make: Callable[..., Backend]) -> list[str]:
    """Check a simulator against its contract; ``make(cache, profile)`` as in the contract."""
    return check(SimulatorContract, make)


def _require_close(got_s: float, expected_s: float, rule: str, what: str) -> None:
    close = abs(got_s - expected_s) <= RELATIVE * expected_s
    require(close, rule, f"{what} takes {got_s} s; by the profile {expected_s} s")
