"""Which layers `specfit` looks at, and what it makes of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from specfit.core.experts import ExpertProbs, Residency
from specfit.core.policy import Cycle
from specfit.core.tree import DraftPlan, DraftTree
from specfit.policies import SpecFit
from specfit.policies.layer_sample import spread_layers
from specfit.testing.examples import example_geometry, make_cycle

GEOMETRY = example_geometry(num_layers=6)


@pytest.mark.parametrize(
    ("num_layers", "count", "expected"),
    [(6, 2, [1, 4]), (6, 1, [3]), (5, 4, [0, 1, 3, 4]), (3, 3, [0, 1, 2])],
)
def test_layers_are_spread_evenly(num_layers: int, count: int, expected: list[int]) -> None:
    assert np.flatnonzero(spread_layers(num_layers, count)).tolist() == expected


def cycle_of(asked: list[NDArray[np.bool_] | None]) -> Cycle:
    """A chain of two nodes whose experts are the same in every layer; `asked` gains the layers."""
    probs = np.zeros((3, GEOMETRY.num_layers, GEOMETRY.num_experts), np.float32)
    for node, experts in enumerate(((0, 1), (2, 3), (4, 5))):
        probs[node][:, list(experts)] = 1.0
    tree = DraftTree.from_arrays(np.array([-1, 0, 1], np.int32), np.array([1.0, 0.9, 0.9]))
    cycle = make_cycle(
        tree,
        geometry=GEOMETRY,
        residency=Residency.nothing(GEOMETRY),
        expert_probs=probs,
    )

    def predict(tree: DraftTree, layers: NDArray[np.bool_] | None) -> ExpertProbs:
        asked.append(layers)
        return cycle._predict(tree, layers)

    return replace(cycle, _predict=predict)


@pytest.mark.parametrize("max_layers", [1, 2, 3])
def test_a_sample_of_like_layers_says_what_all_of_them_say(max_layers: int) -> None:
    """Misses and seconds are those of all layers, though few are predicted."""
    asked: list[NDArray[np.bool_] | None] = []
    selections = []
    for most in (GEOMETRY.num_layers, max_layers):
        policy, cycle = SpecFit(max_layers=most), cycle_of(asked)
        root = DraftTree.root(int(cycle.tree.tokens[0]))
        policy.plan(replace(cycle, tree=root, levels=0, plan=DraftPlan.plain()))
        selections.append(policy.select(cycle))
    whole, sample = selections
    assert [None if layers is None else int(layers.sum()) for layers in asked] == [
        None, None, max_layers, max_layers
    ]  # fmt: skip
    assert sample.nodes.tolist() == whole.nodes.tolist()
    assert whole.prediction is not None
    assert sample.prediction is not None
    assert sample.prediction.misses == pytest.approx(whole.prediction.misses)
    assert sample.prediction.misses == pytest.approx(6 * 2 * len(whole))
    assert sample.prediction.cycle_s == pytest.approx(whole.prediction.cycle_s)
