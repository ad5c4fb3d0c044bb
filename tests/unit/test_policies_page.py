"""The regret page says what a results file holds: shares below the best, and bars missed."""

from __future__ import annotations

from typing import Any

from benchmarks.calibration_page import block as calibration_block
from benchmarks.policies_page import block, outcomes
from benchmarks.policy_causes import CHANGES, Change
from benchmarks.policy_causes_page import block as causes_block
from benchmarks.policy_replay import KNOWING
from specfit.cli.specs import policy_from

PLACES = [["25%", 12e9], ["75%", 58e9]]


def report(specfit: list[float]) -> dict[str, Any]:
    world = {
        "num_judged": 3,
        "places": PLACES,
        "simulated_tokens_per_s": {
            "autoregressive": [10.0, 10.0],
            "specfit": specfit,
            "svip": [8.0, 20.0],
        },
        "references": {KNOWING: [12.0, 20.0]},
        "chosen": {"svip": ["svip", "svip:threshold=0.1"]},
    }
    counts = {"num_prompts": 2, "new_tokens": 8, "replay_processor_s": 3}
    return {**counts, "worlds": {"w": world}}


def test_regret_is_the_share_below_the_best_of_each_cell() -> None:
    shown = block(report([11.0, 15.0]))
    assert "| `specfit` | 0.0 | 25.0 | 12.5 |" in shown
    assert "| `autoregressive` | 9.1 | 50.0 | 29.5 |" in shown
    assert "| gain, % | 10.0 | 50.0 | 30.0 |" in shown
    assert "| of the knowing, % | 50 | 50 |  |" in shown


def test_every_bar_missed_is_named() -> None:
    assert "3: w, 25% resident, 12 GB/s: 50 % of the gain" in block(report([11.0, 15.0]))
    assert "0: none." in block(report([12.0, 20.0]))


def test_outcomes_are_read_back_by_place() -> None:
    found = outcomes(report([11.0, 15.0])["worlds"]["w"])
    assert found.best(("75%", 58e9)) == ("svip", 20.0)
    assert found.chosen["svip"]["75%", 58e9] == "svip:threshold=0.1"


def test_each_change_names_a_policy_and_is_one_change() -> None:
    assert len({change.name for change in CHANGES}) == len(CHANGES)
    same = [vars(change) | {"name": ""} for change in CHANGES]
    assert all(same.count(one) == 1 for one in same)
    assert same[0] == vars(Change(""))
    for change in CHANGES:
        policy_from(change.policy)


def test_causes_are_shown_by_world() -> None:
    rows = [{"change": "as it is", "mean": 1.1}, {"change": "true experts", "mean": 1.25}]
    about = {"num_prompts": 2, "new_tokens": 8, "places": PLACES, "rows": rows}
    shown = causes_block([{**about, "world": name} for name in ("a", "b")])
    assert "| changed | a | b |" in shown
    assert "| true experts | 125.0 | 125.0 |" in shown


def test_small_groups_are_left_out_of_the_calibration_bar() -> None:
    def side(count: int, ece: float) -> dict[str, Any]:
        after = {"count": count, "ece": ece, "predicted": 0.5, "realised": 0.6}
        return {"after": after, "chance": {"outcomes": count // 4, "ece": 0.02, "ece_95": 0.025}}

    groups = {"depth 1 rank 0": side(500, 0.01), "depth 1 rank 1": side(10, 0.4)}
    other = {"one": side(500, 0.03)}
    shown = calibration_block(
        {
            "temperature 0.0": {
                "acceptance": groups,
                "experts by layer": other,
                "experts by depth": other,
                "experts by residency": {"few": side(10, 0.5)},
            }
        }
    )
    assert "| acceptance by depth and rank | 1 of 1 | 1 of 1 | 0.010 (depth 1 rank 0) |" in shown
    assert "| experts by layer | 0 of 1 | 0 of 1 | 0.030 (one) | 0.020, up to 0.025 |" in shown
    assert "| 500 | 125 |" in shown
    assert "residency" not in shown
