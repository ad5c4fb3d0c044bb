"""Cost terms and the cost of a cycle that derives from them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specfit.core._line import line
from specfit.core.copies import CopyTerms
from specfit.core.cost import CostTerms, CycleCost, ProfileCost
from specfit.core.errors import InvalidInputError
from specfit.core.experts import Residency
from specfit.testing.examples import example_geometry, example_profile

GEOMETRY = example_geometry(num_layers=2, num_experts=4)


def terms(**change: Any) -> CostTerms:
    arrays: dict[str, Any] = {
        "draft_s": np.array([0.0, 1.0, 1.5]),
        "tau_s": np.array([0.0, 5.0, 6.0, 7.0]),
        "weight_s": np.ones((2, 4)),
    }
    return CostTerms(**{**arrays, **change})


def test_an_affine_table_gives_its_slope_and_intercept() -> None:
    assert (terms().node_s, terms().fixed_s) == (1.0, 4.0)


@pytest.mark.parametrize("unit_s", [1.0, 1e-14])
def test_a_step_is_no_line_in_any_unit(unit_s: float) -> None:
    assert line(unit_s * np.array([0.0, 5.0, 6.0, 7.0]))[0]
    assert not line(unit_s * np.array([0.0, 5.0, 5.0, 7.0]))[0]


def test_weights_are_by_layer_and_expert() -> None:
    with pytest.raises(InvalidInputError, match=r"weight_s must be \[L, E\]; got \[3\]"):
        terms(weight_s=np.ones(3))


def test_one_node_is_affine_with_no_slope() -> None:
    one = terms(tau_s=np.array([0.0, 5.0]))
    assert line(np.array([0.0, 5.0])) == (True, 5.0, 0.0)
    assert (one.node_s, one.fixed_s) == (0.0, 5.0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tau_s": np.array([0.0, 5.0, 4.0])}, r"tau_s\[2\] = 4.0 is below tau_s\[1\] = 5.0"),
        ({"draft_s": np.array([0.0, 2.0, 1.0])}, r"draft_s\[2\] = 1.0 is below draft_s\[1\]"),
        ({"draft_s": np.array([1.0, 2.0])}, r"draft_s must be one-dimensional and start with 0"),
        ({"tau_s": np.array([0.0, np.inf])}, r"tau_s\[1\] = inf, but seconds are finite"),
        ({"weight_s": np.array([[0.0, -1.0]])}, r"weight_s\[0, 1\] = -1.0, but an expert costs 0"),
        ({"weight_s": np.array([[np.nan]])}, r"weight_s\[0, 0\] = nan"),
    ],
)
def test_terms_that_are_no_times_are_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInputError, match=message):
        terms(**change)


def test_the_parts_of_a_cycle_sum_to_its_time() -> None:
    cost = CycleCost(draft_s=1.0, compute_s=2.0, stall_s=4.0, h2d_s=9.0)
    assert cost.total_s == 7.0, "the link's busy time is no summand"


def test_a_profile_charges_copies_reads_nodes_and_levels() -> None:
    residency = Residency(np.array([[True, False, False, False], [False] * 4]))
    activation = np.array([[1.0, 1, 0, 0], [0, 0, 0, 0.5]])
    cost = ProfileCost(example_profile()).cycle_cost(
        3, activation, levels=2, residency=residency, context_len=10
    )
    assert cost.draft_s == pytest.approx(1e-3 + 5e-4)
    assert cost.compute_s == pytest.approx(1e-2 + 3 * 2e-4 + 2.5 * 1e-4)
    assert cost.stall_s == cost.h2d_s == pytest.approx(1.5 * 1e-3)


def test_a_profiles_terms_are_affine() -> None:
    profile = example_profile()
    drawn = ProfileCost(profile).terms(Residency.nothing(GEOMETRY), 10)
    assert line(drawn.tau_s.copy())[0]
    assert drawn.node_s == pytest.approx(profile.verify_node_s)
    assert drawn.fixed_s == pytest.approx(profile.verify_fixed_s)
    assert (drawn.weight_s == profile.copy_s + profile.resident_expert_s).all()


@pytest.mark.parametrize(("num_nodes", "levels"), [(1025, 0), (0, 0), (1, 33)])
def test_more_than_the_tables_hold_is_refused(num_nodes: int, levels: int) -> None:
    with pytest.raises(InvalidInputError, match=r"covers 1 to 1024 nodes and 0 to 32 levels"):
        ProfileCost(example_profile()).cycle_cost(
            num_nodes,
            np.zeros((2, 4)),
            levels=levels,
            residency=Residency.nothing(GEOMETRY),
            context_len=10,
        )


def test_only_missing_experts_change_their_price() -> None:
    half = Residency(np.array([[True, False]]))
    weight_s, tau_s = np.array([[1.0, 2.0]]), np.array([0.0, 1.0])
    together = CostTerms(np.zeros(1), tau_s, weight_s)
    assert together.with_misses_scaled(half, 1.5).weight_s.tolist() == [[1.0, 3.0]]
    copies = CopyTerms(np.array([[0.0, 1.0]]), np.array([[0.0, 2.0]]), "resident")
    apart = CostTerms(np.zeros(1), tau_s, weight_s, copies).with_misses_scaled(half, 1.5)
    assert apart.weight_s.tolist() == [[1.0, 2.0]]
    assert apart.copies is not None
    assert apart.copies.units.tolist() == [[0.0, 1.5]]
