"""The grids of the policy benchmark: every rival is in them, and those called blind are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarks.policy_grid import BLIND, GRIDS, OURS, PLANS, REFERENCES, rival_of
from specfit.cli.specs import policy_from
from specfit.core.backend import Request
from specfit.core.decode import DecodeResult
from specfit.core.policy import policies
from specfit.testing.toy import toy_backend
from specfit.testing.worlds import run_toy
from tests.contract.shipped import shipped

SPECS = [spec for grid in GRIDS.values() for spec in grid]


def test_every_lossless_policy_is_a_rival() -> None:
    lossless = {cls for cls in shipped(policies) if not cls.is_reference}
    assert {policies.get(name) for name in GRIDS} == lossless - {policies.get(OURS)}
    assert {policies.get(rival_of(spec)) for spec in REFERENCES} == shipped(policies) - lossless


@pytest.mark.parametrize("name", GRIDS)
def test_a_grid_holds_settings_of_its_rival_that_the_traces_cover(name: str) -> None:
    depths = {plan.top_k: plan.depth for plan in PLANS}
    for spec in GRIDS[name]:
        assert rival_of(spec) == name
        policy = policy_from(spec)
        if name != "autoregressive":
            assert getattr(policy, "depth", 0) <= depths[getattr(policy, "top_k", 1)]


def decisions(spec: str, bandwidth: float) -> list[tuple[int, list[int]]]:
    toy = toy_backend("lru:50%")
    toy.profile = replace(toy.profile, h2d_bandwidth_bytes_per_s=bandwidth)
    result: DecodeResult = run_toy(policy_from(spec), toy, Request((3, 1, 4), 24))
    outcomes = [record.outcome for record in result.cycles]
    return [(o.cycle.levels, o.selection.nodes.tolist()) for o in outcomes]


@pytest.mark.parametrize("spec", [s for s in SPECS if rival_of(s) in BLIND])
def test_a_blind_rival_decides_alike_at_every_bandwidth(spec: str) -> None:
    assert decisions(spec, 1e8) == decisions(spec, 1e11)


def test_the_others_do_not() -> None:
    for name in ("evict", "s2-moe", "sequoia", "yggdrasil", "moe-speq", OURS):
        spec = GRIDS.get(name, (OURS,))[-1]
        assert decisions(spec, 1e8) != decisions(spec, 1e11), name
