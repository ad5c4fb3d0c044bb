"""Every ratio against a case counted by hand, and what has no value."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from specfit.core.backend import Prefill, Request, Verification
from specfit.core.decode import CycleRecord, DecodeResult, Timings
from specfit.core.errors import InvalidInputError
from specfit.core.policy import Outcome
from specfit.core.selection import Prediction, Selection
from specfit.core.tree import DraftTree
from specfit.sim.metrics import (
    acceptance_by_depth,
    distinct_4,
    measure,
    paired_ratio,
    paired_speedup,
    regret,
    seconds_errors,
)
from specfit.testing.examples import make_cycle

TREE = DraftTree.from_arrays(np.array([-1, 0, 0, 1], np.int32), np.array([1.0, 0.5, 0.25, 0.5]))


def cycle(
    nodes: tuple[int, ...],
    accepted: tuple[int, ...],
    *,
    hits: int,
    misses: int,
    seconds: float,
    prediction: Prediction | None = None,
    stop_reason: str | None = None,
) -> CycleRecord:
    """Return a cycle of two layers that verified and accepted these nodes of TREE."""
    selection = Selection(TREE, np.isin(np.arange(4), nodes), prediction)
    n = len(nodes)
    counts = (np.array([hits, 0]), np.array([0, misses]), np.array([misses, 0]))
    verification = Verification(
        np.array(nodes), np.zeros(n, np.int64), np.zeros(n, np.float32), np.zeros(n, np.float32),
        np.zeros((n, 2, 1), np.int16), *counts, 0.25 * seconds, 0.5 * seconds,
    )  # fmt: skip
    outcome = Outcome(
        make_cycle(TREE), selection, verification, accepted, (0,) * len(accepted) + (5,)
    )
    timings = Timings(
        0.125 * seconds, 0.0625 * seconds, 0.25 * seconds, 0.5 * seconds, 0.0625 * seconds
    )
    return CycleRecord(outcome, timings, stop_reason)


def result(*cycles: CycleRecord, prompt: tuple[int, ...] = (1,)) -> DecodeResult:
    tokens = (9, *(token for c in cycles for token in c.outcome.committed))
    prefill = Prefill(9, np.zeros((1, 2, 1), np.int16), (1,), 100.0)
    return DecodeResult(Request(prompt, 64), prefill, tokens, cycles, "length")


FIRST = cycle((0, 1, 2), (1,), hits=3, misses=5, seconds=2.0, prediction=Prediction(1.5, 4.0, 1.0))
SECOND = cycle(
    (0, 1, 3), (1, 3), hits=1, misses=1, seconds=4.0, prediction=Prediction(2.0, 3.0, 5.0)
)
LAST = cycle(
    (0,),
    (),
    hits=2,
    misses=0,
    seconds=2.0,
    prediction=Prediction(9.0, 1.0, 2.0),
    stop_reason="stop",
)
RESULT = result(FIRST, SECOND, LAST)


def test_counters_and_ratios_by_hand() -> None:
    m = measure([RESULT], 10)
    assert (m.num_prompts, m.num_cycles, m.num_committed) == (1, 3, 2 + 3 + 1)
    assert (m.num_verified, m.num_accepted, m.num_levels) == (7, 3, 6)
    assert (m.num_hits, m.num_misses, m.num_evictions, m.h2d_bytes) == (6, 6, 6, 60)
    assert m.decode_s == 8.0
    assert m.draft_s + m.select_s + m.stall_s + m.compute_s + m.commit_s == 8.0
    assert m.tokens_per_s == 6 / 8
    assert m.committed_per_cycle == 2.0
    assert m.verified_per_cycle == 7 / 3
    assert m.levels_per_cycle == 2.0
    assert m.acceptance_rate == 3 / 4
    assert (m.copied_per_token, m.bytes_per_token, m.hit_rate) == (1.0, 10.0, 0.5)


def test_the_prefill_is_not_counted() -> None:
    assert measure([RESULT], 1).decode_s == RESULT.decode_s == 8.0
    assert RESULT.num_decoded == measure([RESULT], 1).num_committed == 6


def test_predictions_are_held_against_what_came_of_them() -> None:
    """The last cycle is cut by the end of the text: its committed tokens are left out."""
    calibration = measure([RESULT], 1).calibration
    assert calibration.committed_ratio == (1.5 + 2.0) / (2 + 3)
    assert calibration.misses_ratio == (4 + 3 + 1) / (5 + 1 + 0)
    np.testing.assert_allclose(calibration.cycle_errors, [0.5, 0.25, 0.0])
    assert calibration.cycle_error_median == 0.25


def test_what_nobody_predicted_has_no_calibration() -> None:
    m = measure([result(cycle((0,), (), hits=1, misses=1, seconds=1.0))], 1)
    assert math.isnan(m.calibration.committed_ratio)
    assert math.isnan(m.calibration.cycle_error_p95)
    assert math.isnan(m.acceptance_rate)


def test_no_result_has_no_ratio() -> None:
    assert math.isnan(measure([], 1).tokens_per_s)


@pytest.mark.parametrize(
    ("tokens", "share"),
    [((1, 2, 3, 4, 5), 1.0), ((1, 2, 3, 4, 1, 2, 3, 4), 4 / 5), ((7,) * 10, 1 / 7)],
)
def test_distinct_4(tokens: tuple[int, ...], share: float) -> None:
    assert distinct_4(tokens) == share


def test_distinct_4_counts_within_each_text() -> None:
    assert math.isnan(distinct_4((1, 2, 3)))
    assert measure([RESULT, RESULT], 1).distinct_4 == measure([RESULT], 1).distinct_4


def test_a_speedup_is_a_ratio_of_sums() -> None:
    """Three prompts: 1, 2 and 3 tokens in as many seconds, against 8, 2 and 2 seconds."""
    ours = np.array([[1.0, 1.0], [2.0, 2.0], [3.0, 3.0]])
    theirs = np.array([[1.0, 8.0], [2.0, 2.0], [3.0, 2.0]])
    interval = paired_ratio(ours, theirs)
    assert interval.estimate == 1.0 / (6 / 12)
    assert interval.low < 2.0 < interval.high
    assert paired_ratio(ours, theirs) == interval


def test_prompts_are_resampled_in_pairs() -> None:
    """However different the prompts, one that is twice as fast on each has no spread."""
    theirs = np.array([[4.0, 1.0], [4.0, 100.0], [4.0, 7.0]])
    interval = paired_ratio(theirs * [1.0, 0.5], theirs)
    assert (interval.low, interval.estimate, interval.high) == pytest.approx((2.0, 2.0, 2.0))


def test_other_prompts_are_not_compared() -> None:
    other = replace(RESULT, request=Request((2,), 64))
    for baseline in ([other], [RESULT, RESULT], []):
        with pytest.raises(InvalidInputError, match=r"same prompts in the same order"):
            paired_speedup([RESULT], baseline)
    assert paired_speedup([RESULT], [RESULT]).estimate == 1.0


def test_acceptance_by_depth() -> None:
    counts = acceptance_by_depth([RESULT])
    assert [(c.depth, c.num_verified, c.num_accepted) for c in counts] == [(1, 3, 2), (2, 1, 1)]
    assert counts[0].acceptance_rate == 2 / 3
    assert acceptance_by_depth([]) == []


def test_seconds_are_compared_without_the_policys_own() -> None:
    live = [result(FIRST)]
    simulated = [result(replace(FIRST, timings=Timings(0.25, 0.0, 0.5, 1.0, 0.5)))]
    np.testing.assert_allclose(seconds_errors(live, simulated), [(2.25 - 1.875) / 1.875])
    with pytest.raises(InvalidInputError, match=r"same cycles"):
        seconds_errors(live, [RESULT])


@pytest.mark.parametrize(
    ("tokens_per_s", "expected"), [(10.0, 0.0), (7.5, 0.25), (0.0, 1.0), (12.0, 0.0)]
)
def test_regret_is_the_share_of_the_best_that_is_missing(
    tokens_per_s: float, expected: float
) -> None:
    """Faster than the best is only a reference, which is not counted as one."""
    assert regret(tokens_per_s, 10.0) == expected


def test_without_a_best_there_is_no_regret_to_speak_of() -> None:
    assert math.isnan(regret(5.0, 0.0))
    assert math.isnan(regret(float("nan"), 5.0))
