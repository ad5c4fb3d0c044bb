"""The routing history: what it keeps of the newest tokens, and what a snapshot does not see."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specfit.core.backend import Request
from specfit.core.history import RoutingHistory
from specfit.core.tree import DraftTree
from specfit.testing.examples import UniformPredictor, example_geometry
from tests.unit.core.test_decode import Everything, loop

GEOMETRY = example_geometry(num_layers=2)


def routing(num_tokens: int, key: int = 0) -> np.ndarray:
    generator = np.random.default_rng([key, num_tokens])
    drawn = generator.random((num_tokens, 2, 16)).argsort(axis=2)
    return drawn[:, :, :2].astype(np.int16)


@given(st.lists(st.integers(0, 9), max_size=6), st.integers(0, 40))
def test_recent_is_the_end_of_all_that_was_appended(sizes: list[int], count: int) -> None:
    parts = [routing(size, key) for key, size in enumerate(sizes)]
    history = RoutingHistory(GEOMETRY)
    for part in parts:
        history.append(part)
    whole = np.concatenate([routing(0), *parts])
    assert np.array_equal(history.recent(count), whole[max(len(whole) - count, 0) :])


def test_a_snapshot_does_not_see_later_tokens() -> None:
    history = RoutingHistory(GEOMETRY)
    history.append(routing(3))
    snapshot = history.snapshot()
    before = snapshot.recent(9).copy()
    history.append(routing(20, key=1))
    assert np.array_equal(snapshot.recent(9), before)
    assert (snapshot.num_tokens, history.num_tokens) == (3, 23)


def test_recent_cannot_be_written_to() -> None:
    history = RoutingHistory(GEOMETRY)
    history.append(routing(3))
    assert not history.recent(2).flags.writeable


def test_a_snapshot_asked_late_says_what_one_asked_at_once_said() -> None:
    """The ages are worked out when they are asked for, from rows that have grown since."""
    geometry = example_geometry()
    shape = (1, geometry.num_layers, geometry.experts_per_token)
    rng = np.random.default_rng(4)
    history = RoutingHistory(geometry)
    kept = []
    for _ in range(40):
        history.append(rng.integers(geometry.num_experts, size=shape).astype(np.int16))
        late, early = history.snapshot(), history.snapshot()
        kept.append((late, early.ages, late.snapshot()))
    for late, ages, of_late in kept:
        assert np.array_equal(of_late.ages, ages)
        assert np.array_equal(late.ages, ages)


def test_the_loop_tells_what_rejected_nodes_needed() -> None:
    """An expert that no verified node needed is as old as all of them together."""

    class Sees(UniformPredictor):
        def predict(self, tree: DraftTree, history: RoutingHistory, first: int) -> Any:
            ages.append(history.ages)
            return super().predict(tree, history, first)

    ages: list[np.ndarray] = []
    decode = loop(Everything())
    sees = Sees(decode.backend.geometry)
    stream = replace(decode, predictor=sees).stream(Request((3, 1, 4, 1, 5), 12))
    history = RoutingHistory(decode.backend.geometry)
    history.append(next(stream).routing)
    num_rejected = 0
    for record in stream:
        assert record.outcome.cycle.expert_probs is not None  # asked for only now
        np.testing.assert_array_equal(ages.pop(), history.ages)
        answer = record.outcome.verification
        kept = np.isin(answer.nodes, (0, *record.outcome.accepted))
        history.append(answer.routing[kept], answer.routing[~kept])
        num_rejected += int((~kept).sum())
    assert num_rejected > 0
