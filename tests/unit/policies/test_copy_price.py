"""What a missing expert's copy is charged."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specfit.core.copies import Overlap
from specfit.core.cost import ProfileCost
from specfit.core.experts import Residency
from specfit.core.policy import Cycle
from specfit.core.tree import DraftPlan, DraftTree
from specfit.policies import SpecFit
from specfit.policies.copy_price import charged_weights, room_of
from specfit.testing.examples import example_geometry, example_profile, make_cycle

GEOMETRY = example_geometry()  # 4 layers, 16 experts, top-2


def test_missing_experts_are_charged_a_part_and_layers_stand_for_others() -> None:
    weight_s = np.array([[1.0, 3.0], [5.0, 7.0], [2.0, 2.0], [4.0, 4.0]])
    residency = Residency(np.array([[True, False]] * 4))
    charged_s, share = charged_weights(
        weight_s, residency, 0.5, np.array([False, True, False, True]), 2.0
    )
    assert charged_s.tolist() == [[0, 0], [10, 7], [0, 0], [8, 4]]
    assert share == pytest.approx(11 / 20)


def test_free_experts_have_no_missing_part() -> None:
    nothing = Residency(np.zeros((1, 2), bool))
    charged_s, share = charged_weights(np.zeros((1, 2)), nothing, 0.5, np.ones(1, bool), 1.0)
    assert (charged_s.tolist(), share) == ([[0.0, 0.0]], 0.0)


@pytest.mark.parametrize(
    ("resident", "room"), [(0, 0.0), (1, 0.0), (2, 0.0), (4, 0.5), (16, 0.875)]
)
def test_room_is_what_is_there_beyond_one_token(resident: int, room: float) -> None:
    mask = np.zeros((GEOMETRY.num_layers, GEOMETRY.num_experts), bool)
    mask[:, :resident] = True
    assert room_of(Residency(mask), GEOMETRY) == room


def cycle_of(resident: int, overlap: Overlap) -> Cycle:
    """A root and one child of probability .5; every expert is as likely as any other."""
    mask = np.zeros((GEOMETRY.num_layers, GEOMETRY.num_experts), bool)
    mask[:, :resident] = True
    tree = DraftTree.from_arrays(np.array([-1, 0], np.int32), np.array([1.0, 0.5]))
    cost = ProfileCost(replace(example_profile(), overlap=overlap))
    return make_cycle(tree, geometry=GEOMETRY, residency=Residency(mask), cost=cost)


@pytest.mark.parametrize("overlap", ["none", "resident"])
@pytest.mark.parametrize("resident", [0, 8])
def test_what_is_salvaged_or_forgiven_is_still_predicted_in_full(
    resident: int, overlap: Overlap
) -> None:
    """A choice is charged less, but the cycle takes as long as it takes."""
    predictions = []
    for settings in ({"discount": 0.0, "salvage": 0.0}, {"discount": 0.9, "salvage": 0.9}):
        policy, cycle = SpecFit(max_nodes=1, **settings), cycle_of(resident, overlap)
        root = DraftTree.root(int(cycle.tree.tokens[0]))
        policy.plan(replace(cycle, tree=root, levels=0, plan=DraftPlan.plain()))
        predictions.append(policy.select(cycle).prediction)
    plain, charged = predictions
    assert plain is not None
    assert charged is not None
    assert charged.misses == pytest.approx(plain.misses)
    assert charged.misses == pytest.approx(4 * 2 * (1 - resident / 16))
    assert charged.cycle_s == pytest.approx(plain.cycle_s)
