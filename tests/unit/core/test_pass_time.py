"""The clock and the cost model say the same of a pass, under every overlap, with a disk or none."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from specfit.core.copies import Overlap, pass_seconds
from specfit.core.cost import ProfileCost
from specfit.core.experts import Residency
from specfit.core.pass_time import CopiesAhead, pass_time
from specfit.core.profile import HardwareProfile
from specfit.testing.examples import example_profile

OVERLAPS: tuple[Any, ...] = get_args(Overlap)
NOTHING = np.zeros(3, np.int64)


def profile(**changes: Any) -> HardwareProfile:
    return replace(example_profile(), **changes)


@pytest.mark.parametrize("has_disk", [False, True])
@pytest.mark.parametrize("table", [(), (0.02, 0.02, 0.05, 0.06)])
@pytest.mark.parametrize("overlap", OVERLAPS)
def test_the_clock_takes_what_the_cost_model_predicts(
    overlap: Any, table: tuple[float, ...], has_disk: bool
) -> None:
    """For sure experts; under "pass" the cost model takes every copy as made ahead."""
    rng = np.random.default_rng(5)
    disk = {"ssd_latency_s": 1e-4, "ssd_bandwidth_bytes_per_s": 2e9} if has_disk else {}
    p = profile(overlap=overlap, verify_table_s=table, **disk)
    for num_nodes in (1, 3, 9):
        needed, resident, in_host = rng.random((3, 5, 12)) < 0.5
        missing = needed & ~resident
        on_disk = missing & ~in_host if has_disk else missing & False
        residency = Residency(resident, in_host if has_disk else None)
        hits, misses, reads = (m.sum(axis=1) for m in (needed & resident, missing, on_disk))
        if overlap == "pass":
            ahead = CopiesAhead(int(misses.sum()), int(reads.sum()))
            stall_s, compute_s = pass_time(p, num_nodes, hits + misses, 0 * misses, ahead=ahead)
        else:
            stall_s, compute_s = pass_time(p, num_nodes, hits, misses, reads)
        cost = ProfileCost(p).cycle_cost(
            num_nodes, needed.astype(float), levels=0, residency=residency, context_len=9
        )
        assert stall_s + compute_s == pytest.approx(cost.total_s, rel=1e-12)
        if overlap != "none":  # affine terms do not say what of a missing expert is compute
            assert compute_s == pytest.approx(cost.compute_s, rel=1e-12)
            assert stall_s == pytest.approx(cost.stall_s, rel=1e-9, abs=1e-12)


def test_the_formulas_by_hand() -> None:
    """Compute 1, 2, 3 and copies 4, 0, 1 in three layers, tau 6; 5 ahead with a head start of 2."""
    expert_s, copy_s = np.array([1.0, 2.0, 3.0]), np.array([4.0, 0.0, 1.0])

    def seconds(overlap: Any) -> float:
        return pass_seconds(overlap, 6.0, expert_s, copy_s, ahead_s=5.0, lead_s=2.0)

    assert seconds("none") == 6 + 6 + 5 + 5
    assert seconds("layer") == (4 + 4 + 5) + 5
    assert seconds("resident") == 6 + (4 + 2 + 3) + 5
    assert seconds("pass") == max(12, 3) + 5


def test_a_long_queue_ahead_outlasts_the_pass() -> None:
    p = profile(overlap="pass")
    none_s, compute_s = pass_time(p, 2, NOTHING, NOTHING)
    assert none_s == 0
    num = int(3 * compute_s / p.copy_s) + 1
    late_s, _ = pass_time(p, 2, NOTHING, NOTHING, ahead=CopiesAhead(num))
    early_s, _ = pass_time(p, 2, NOTHING, NOTHING, ahead=CopiesAhead(num, lead_s=compute_s))
    assert late_s == pytest.approx(num * p.copy_s - compute_s)
    assert early_s == pytest.approx(late_s - compute_s)


def test_overlap_never_costs_and_hides_no_more_than_there_is() -> None:
    rng = np.random.default_rng(8)
    for _ in range(50):
        expert_s, copy_s = rng.random((2, 7))
        times = {o: pass_seconds(o, 2.0, expert_s, copy_s) for o in OVERLAPS}
        assert times["layer"] <= times["resident"] <= times["none"]
        assert times["layer"] * (1 + 1e-12) >= max(2 + expert_s.sum(), copy_s.sum())


def test_a_table_of_nodes_goes_on_with_its_last_step() -> None:
    p = profile(verify_table_s=(1.0, 1.5, 3.0))
    assert [p.tau_s(n) for n in (1, 2, 3, 4, 6)] == [1.0, 1.5, 3.0, 4.5, 7.5]
    assert p.tau_table_s(5).tolist() == [0.0, 1.0, 1.5, 3.0, 4.5, 6.0]
    assert profile(verify_table_s=(2.0,)).tau_s(9) == 2.0


def test_reading_from_disk_takes_its_own_latency_and_bytes() -> None:
    p = profile(ssd_latency_s=1e-4, ssd_bandwidth_bytes_per_s=2e9, expert_bytes=1_000_000)
    assert p.ssd_s == pytest.approx(1e-4 + 5e-4)
    assert profile().ssd_s == 0
