"""Deciding a finished cycle again: as recorded it is what was recorded, elsewhere as replayed."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specfit.core.backend import Request
from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeLoop
from specfit.core.policy import Policy, policies
from specfit.core.prefetch import PredictedUnion, Prefetcher, PreviousToken
from specfit.core.search import exact, greedy
from specfit.policies import Autoregressive, Eagle3, SpecFit
from specfit.report.cycle_page import PageText, cycle_page, stop_of
from specfit.report.explanation import look_texts, price_text, rule_texts
from specfit.report.reenact import Scene, decide, watch_scene
from specfit.report.what_if import Answer, WhatIf, caches_to_try
from specfit.sim.oracle import NoisyOracle
from specfit.sim.replay import ReplayBackend
from specfit.sim.trace import TraceReader
from specfit.testing.examples import (
    DrafterAcceptance,
    UniformPredictor,
    example_geometry,
    example_profile,
)
from specfit.testing.toy import toy_backend
from tests.unit.sim.traces import write_positions

REQUEST = Request((1, 2, 3), 40)
CHEAP = replace(example_profile(), first_level_s=1e-6, level_s=1e-6)
"""A profile in which drafting costs next to nothing, so that trees are deep."""


def loop_of(policy: Policy, profile=CHEAP, cache: str = "lru:50%") -> DecodeLoop:
    backend = toy_backend(cache)
    inputs = UniformPredictor(backend.geometry), DrafterAcceptance()
    return DecodeLoop(backend, policy, ProfileCost(profile), *inputs)


def scene_of(policy: Policy, index: int, **given) -> Scene:
    return watch_scene(loop_of(policy, **given), REQUEST, index)


def what_if_of(scene: Scene) -> WhatIf:
    def cache(spec):
        return make_cache(spec, scene.cycle.geometry)

    rivals = {name: policies.make(name) for name in ("eagle3", "evict")}
    return WhatIf(scene, CHEAP, ProfileCost, cache, rivals)


def recorded(what_if: WhatIf) -> Answer:
    return what_if.answer(what_if.scene.cycle)


@pytest.mark.parametrize("policy", [SpecFit(), Eagle3(4, 3, 9), Autoregressive()])
def test_a_cycle_decided_again_is_the_cycle(policy):
    whole = loop_of(policy).run(REQUEST)
    for index in (0, 3, len(whole.cycles) - 1):
        scene = scene_of(policy, index)
        selection = scene.record.outcome.selection
        assert selection.mask.tolist() == whole.cycles[index].outcome.selection.mask.tolist()
        decision = decide(scene.policy, scene.cycle)
        assert decision.mask.tolist() == selection.mask.tolist()
        assert decision.levels == scene.cycle.levels
        assert not decision.wants_more


@pytest.mark.parametrize("max_layers", [1, 8])
def test_what_is_expected_is_what_the_policy_predicted(max_layers):
    """At full price, whatever is forgiven or salvaged, and of all layers, however few are seen."""
    for index in (0, 5, 9):
        what_if = what_if_of(scene_of(SpecFit(max_layers=max_layers), index))
        answer = recorded(what_if)
        predicted = what_if.scene.record.outcome.selection.prediction
        expected = answer.expect(answer.decision.mask, answer.decision.levels)
        assert expected.committed == pytest.approx(predicted.committed)
        assert expected.copies == pytest.approx(predicted.misses)
        assert expected.cycle_s == pytest.approx(predicted.cycle_s)


def test_the_same_cache_holds_what_was_resident():
    what_if = what_if_of(scene_of(SpecFit(), 6))
    found = what_if.scene.residency_in(what_if.make_cache("lru:50%"))
    assert (found.mask == what_if.scene.cycle.residency.mask).all()
    everything = what_if.scene.residency_in(what_if.make_cache("lru:100%"))
    assert everything.mask.sum() > found.mask.sum()


@pytest.mark.parametrize("prefetcher", [PreviousToken(3), PredictedUnion(0.5)])
def test_the_same_cache_with_the_same_copies_ahead_holds_what_was_resident(
    tmp_path: Path, prefetcher: Prefetcher
) -> None:
    write_positions(tmp_path / "trace")
    cache, predictor = make_cache("lru:50%", example_geometry()), NoisyOracle(recall=0.6)
    backend = ReplayBackend(TraceReader(tmp_path / "trace"), cache, CHEAP)
    predictor.connect(backend)
    loop = DecodeLoop(
        backend,
        Eagle3(4, 3, 9),
        ProfileCost(CHEAP),
        predictor,
        DrafterAcceptance(),
        prefetcher=prefetcher,
    )
    request = next(backend.requests())
    for index in (0, 1, 4):
        scene = watch_scene(loop, request, index)
        found = scene.residency_in(make_cache("lru:50%", backend.geometry))
        assert (found.mask == scene.cycle.residency.mask).all()
    assert any(wanted.any() for wanted in scene.wanted)


def test_at_other_stops_the_first_cycle_is_what_a_decode_there_does():
    """The state is the same at the start of a text, so the answer is that of a run of its own."""
    what_if = what_if_of(scene_of(SpecFit(), 0, profile=replace(CHEAP, copy_latency_s=0.0)))
    compared = 0
    for factor in (0.125, 0.5, 1.0, 2.0, 8.0):
        for cache in caches_to_try("lru:8", 16, 2):
            bandwidth = CHEAP.h2d_bandwidth_bytes_per_s * factor
            decision = what_if.at(bandwidth, cache).decision
            profile = replace(CHEAP, h2d_bandwidth_bytes_per_s=bandwidth)
            there = scene_of(SpecFit(), 0, profile=profile, cache=cache).record.outcome
            if decision.wants_more:
                assert there.cycle.levels > decision.levels
                continue
            compared += 1
            assert there.cycle.levels == decision.levels
            assert there.selection.nodes.tolist() == np.flatnonzero(decision.mask).tolist()
    assert compared >= 20


def test_a_policy_without_a_search_is_held_against_the_exact_one():
    answer = recorded(what_if_of(scene_of(Eagle3(4, 3, 9), 4)))
    assert answer.rules["exact search"].tolist() == exact(answer.problem).mask.tolist()
    assert answer.rules["greedy"].tolist() == greedy(answer.problem).mask.tolist()
    assert answer.decision.looks == ()
    lines = rule_texts(answer, "eagle3:4,3,9")
    assert lines[0].startswith("eagle3:4,3,9: 9 nodes, ")


def test_no_rule_beats_an_undiscounted_search_by_its_own_beliefs():
    at_full_price = SpecFit(discount=0.0, salvage=0.0, spare_salvage=0.0)
    answer = recorded(what_if_of(scene_of(at_full_price, 2)))
    ours = answer.expect(answer.decision.mask, answer.decision.levels)
    best = ours.committed / ours.cycle_s
    for mask in answer.rules.values():
        theirs = answer.expect(mask, answer.cycle.levels)
        assert theirs.committed / theirs.cycle_s <= best * (1 + 1e-9)
    assert best == pytest.approx(answer.best.price)


def test_the_gains_of_what_was_chosen_and_left_out_tell_why():
    """Left out: no leaf of the choice's border gains. Chosen: no chosen leaf loses."""
    for index in range(8):
        answer = recorded(what_if_of(scene_of(SpecFit(discount=0.0), index)))
        mask, tree = answer.decision.mask, answer.cycle.tree
        _, _, gains = answer.node_costs()
        for node in range(1, len(tree)):
            is_leaf = not mask[tree.children(node)].any()
            if mask[node] and is_leaf:
                assert gains[node] >= -1e-9
            if not mask[node] and mask[tree.parents[node]]:
                assert gains[node] <= 1e-9


def test_every_level_that_was_searched_says_what_it_saw():
    answer = recorded(what_if_of(scene_of(SpecFit(), 3)))
    lines = look_texts(answer.decision.looks)
    levels = [int(line.partition(":")[0].removeprefix("level ")) for line in lines]
    assert levels[0] == 0
    assert levels[-1] == answer.decision.levels
    assert levels == sorted(set(levels))
    assert "draft on" in lines[0]
    assert "tokens/s" in price_text(answer)


def test_cache_stops_hold_the_recorded_size_and_both_ends():
    assert caches_to_try("lfu:25,decay=0.9", 64, 8) == [
        f"lfu:{n},decay=0.9" for n in (8, 15, 25, 29, 36, 43, 50, 57, 64)
    ]
    assert caches_to_try("none", 4, 2) == ["none", "lru:2", "lru:3", "lru:4"]


TEXT = PageText("t </script><b>", "came", "seconds", "price", "proof", ["level 0"])


def data_of(page: str) -> dict:
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    return json.loads(found[1])


@pytest.mark.parametrize("policy", [Autoregressive(), Eagle3(6, 11, 600)])
def test_a_page_holds_trees_of_1_and_of_600_nodes(tmp_path: Path, policy):
    what_if = what_if_of(scene_of(policy, 0))
    page = cycle_page(what_if, ["lru:2", "lru:8"], "lru:8", str, TEXT)
    data = data_of(page)
    size = len(what_if.scene.cycle.tree)
    assert size == (1 if policy.to_spec()["name"] == "autoregressive" else 617)
    assert len(data["nodes"]) == size
    assert data["text"]["title"] == "t </script><b>"
    assert all(len(stop["gains"]) == size for row in data["stops"] for stop in row)
    start = data["stops"][data["start"]["cache"]][data["start"]["bandwidth"]]
    assert start == json.loads(json.dumps(stop_of(recorded(what_if))))
    assert "http" not in re.sub(r'"http://www.w3.org/2000/svg"', "", page)
