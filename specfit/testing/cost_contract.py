"""What every cost model keeps: times that add up, never fall, and come from the terms."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from specfit.core.cost import CostModel, CycleCost
from specfit.core.experts import ModelGeometry, Residency
from specfit.core.profile import HardwareProfile
from specfit.testing.contract import Contract, check, require
from specfit.testing.examples import example_geometry

CONTEXT_LENGTHS = (1, 100, 4000)
RELATIVE = 1e-12
"""Differences that rounding explains."""


class CostModelContract(Contract):
    """C1 to C7, but for C6. ``make`` returns the model; `geometry` is the target's shape.

    C6 and C8 are of the search: its bounds, and its kernels against Python.
    """

    geometry: ClassVar[ModelGeometry] = example_geometry(num_layers=3)

    def test_c1_times_add_up(self) -> None:
        """Every part is finite and 0 or more; the total is theirs, and what the terms say."""
        for residency, activation, num_nodes, levels, context_len in self._cases():
            cost = self._cost(residency, activation, num_nodes, levels, context_len)
            parts = (cost.draft_s, cost.compute_s, cost.stall_s, cost.h2d_s)
            require(all(0 <= part < float("inf") for part in parts), "C1", f"parts {parts}")
            total_s = cost.draft_s + cost.compute_s + cost.stall_s
            require(_close(cost.total_s, total_s), "C1", f"{cost.total_s} s, but parts {parts}")
            terms = self.make().terms(residency, context_len)
            said_s = terms.draft_s[levels] + terms.pass_s(num_nodes, activation)
            require(_close(total_s, said_s), "C1", f"{total_s} s, but the terms say {said_s} s")

    def test_c2_more_work_never_takes_less(self) -> None:
        """A node more, a level more, an expert more: the total does not fall."""
        for residency, activation, num_nodes, levels, context_len in self._cases():
            base = self._cost(residency, activation, num_nodes, levels, context_len)
            wider = np.maximum(activation, np.roll(activation, 1, axis=1))
            for more in (
                self._cost(residency, activation, num_nodes + 1, levels, context_len),
                self._cost(residency, activation, num_nodes, levels + 1, context_len),
                self._cost(residency, wider, num_nodes, levels, context_len),
            ):
                falls = more.total_s < base.total_s * (1 - RELATIVE)
                require(not falls, "C2", f"{base.total_s} s, with more work {more.total_s} s")

    def test_c3_residency_never_costs(self) -> None:
        """Making an expert resident never raises the total."""
        generator = np.random.default_rng(3)
        for residency, activation, num_nodes, levels, context_len in self._cases():
            base = self._cost(residency, activation, num_nodes, levels, context_len)
            more = Residency(residency.mask | (generator.random(residency.mask.shape) < 0.3))
            cost = self._cost(more, activation, num_nodes, levels, context_len)
            rises = cost.total_s > base.total_s * (1 + RELATIVE)
            require(not rises, "C3", f"{base.total_s} s, with more resident {cost.total_s} s")

    def test_c4_equal_unions_cost_the_same(self) -> None:
        """The cost follows from union, nodes, levels, residency and context alone."""
        model = self.make()
        cases = self._cases()

        def total(case: _Case, model: CostModel) -> float:
            residency, activation, num_nodes, levels, context_len = case
            return model.cycle_cost(
                num_nodes,
                activation,
                levels=levels,
                residency=residency,
                context_len=context_len,
            ).total_s

        first = [total(case, model) for case in cases]
        again = [total(case, model) for case in reversed(cases)][::-1]
        fresh = [total(case, self.make()) for case in cases]
        require(first == again, "C4", f"{first} s, asked again {again} s")
        require(first == fresh, "C4", f"{first} s, a fresh model says {fresh} s")

    def test_c5_a_plain_step_drafts_nothing(self) -> None:
        """With 0 levels the cost is that of one autoregressive step: no drafting in it."""
        for residency, activation, _, _, context_len in self._cases():
            cost = self._cost(residency, activation, 1, 0, context_len)
            require(cost.draft_s == 0, "C5", f"{cost.draft_s} s of drafting in a plain step")

    def test_c7_bytes_a_second(self) -> None:
        """Twice the bandwidth at no latency halves `h2d_s`; for models with a hardware profile."""
        model: Any = self.make()
        profile = getattr(model, "profile", None)
        if not isinstance(profile, HardwareProfile):
            return
        bare = dataclasses.replace(profile, copy_latency_s=0.0)
        twice = dataclasses.replace(
            bare, h2d_bandwidth_bytes_per_s=2 * profile.h2d_bandwidth_bytes_per_s
        )
        residency = Residency.nothing(self.geometry)
        activation = np.ones(residency.mask.shape)
        slow_s, fast_s = (
            dataclasses.replace(model, profile=changed)
            .cycle_cost(1, activation, levels=0, residency=residency, context_len=9)
            .h2d_s
            for changed in (bare, twice)
        )
        require(_close(slow_s, 2 * fast_s), "C7", f"{slow_s} s, at twice the speed {fast_s} s")

    def _cost(
        self,
        residency: Residency,
        activation: NDArray[np.float64],
        num_nodes: int,
        levels: int,
        context_len: int,
    ) -> CycleCost:
        model: CostModel = self.make()
        return model.cycle_cost(
            num_nodes, activation, levels=levels, residency=residency, context_len=context_len
        )

    def _cases(self) -> list[_Case]:
        """Return cycles of every kind: nothing and everything resident, sure and unsure experts."""
        g = self.geometry
        generator = np.random.default_rng(11)
        shape = (g.num_layers, g.num_experts)
        cases: list[_Case] = []
        for context_len in CONTEXT_LENGTHS:
            for share in (0.0, 0.4, 1.0):
                for levels, num_nodes in ((0, 1), (1, 2), (3, 15)):
                    residency = Residency(generator.random(shape) < share)
                    activation = (generator.random(shape) < 0.5).astype(np.float64)
                    if num_nodes == 15:
                        activation *= generator.random(shape)
                    cases.append((residency, activation, num_nodes, levels, context_len))
        return cases


_Case = tuple[Residency, NDArray[np.float64], int, int, int]


def check_cost_model(make: Callable[[], CostModel]) -> list[str]:
    """Check a cost model against its contract; see `CostModelContract`."""
    return check(CostModelContract, make)


def _close(a: float, b: float) -> bool:
    return abs(a - b) <= RELATIVE * max(abs(a), abs(b))
