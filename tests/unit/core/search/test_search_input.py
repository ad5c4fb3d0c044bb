"""What the search refuses, with the index and the value."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specfit.core.copies import CopyTerms
from specfit.core.cost import CostTerms
from specfit.core.errors import InvalidInputError, InvalidTreeError, UnsupportedCostError
from specfit.core.search import (
    LevelSearch,
    ProbPricer,
    RoutingPricer,
    RunningRate,
    SearchProblem,
    certify,
    exact,
    exact_monotone,
    exact_union,
    should_draft,
)

WEIGHT_S = np.array([[0.5, 0.0, 0.25]])
LINE = np.array([0.0, 1.0, 1.25, 1.5, 1.75])
PARENTS = np.array([-1, 0, 0], np.int32)
PATH_PROBS = np.array([1.0, 0.5, 0.25])
ROUTING = np.array([[[0]], [[1]], [[2]]], np.int16)


def problem(**change: Any) -> SearchProblem:
    parents, path_probs = change.pop("parents", PARENTS), change.pop("path_probs", PATH_PROBS)
    tau_s, weight_s = change.pop("tau_s", LINE), change.pop("weight_s", WEIGHT_S)
    pricer = RoutingPricer()
    pricer.start(weight_s)
    pricer.extend(PARENTS, PATH_PROBS, ROUTING)
    terms = CostTerms(np.array([0.0, 0.5]), tau_s, weight_s, change.pop("copies", None))
    return SearchProblem(
        parents, path_probs, pricer.demand(), terms, change.pop("levels", 0), **change
    )


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"parents": [0, 0, 0]}, InvalidTreeError, r"parents\[0\] must be -1.*got 0"),
        ({"parents": [-1, 2, 0]}, InvalidTreeError, r"parents\[1\] = 2, but a parent must come"),
        ({"parents": [-1, -1, 0]}, InvalidTreeError, r"parents\[1\] = -1"),
        ({"path_probs": [1.0, np.nan, 0.1]}, InvalidTreeError, r"path_probs\[1\] = nan"),
        ({"path_probs": [1.0, -0.5, 0.1]}, InvalidTreeError, r"path_probs\[1\] = -0.5"),
        ({"path_probs": [1.5, 0.5, 0.1]}, InvalidTreeError, r"path_probs\[0\] = 1.5"),
        (
            {"parents": [-1, 0, 1], "path_probs": [1.0, 0.5, 0.6]},
            InvalidTreeError,
            r"path_probs\[2\] = 0.6 is above that of its parent, path_probs\[1\] = 0.5",
        ),
        ({"path_probs": [1.0, 0.5]}, InvalidInputError, "got 3, 2 and 3"),
        ({"parents": [-1, 0], "path_probs": [1.0, 0.5]}, InvalidInputError, "got 2, 2 and 3"),
        ({"levels": 2}, InvalidInputError, "levels must be from 0 to 1"),
        ({"levels": -1}, InvalidInputError, "levels must be from 0 to 1"),
        ({"max_nodes": 0}, InvalidInputError, "max_nodes counts the root"),
        ({"max_nodes": float("nan")}, InvalidInputError, "max_nodes counts the root"),
        ({"tau_s": np.zeros(1)}, InvalidInputError, r"tau_s\[1\]"),
    ],
)
def test_a_wrong_problem_is_refused(change: dict[str, Any], error: type, message: str) -> None:
    arrays = {
        name: np.array(values, np.int32 if name == "parents" else np.float64)
        for name, values in change.items()
        if isinstance(values, list)
    }
    with pytest.raises(error, match=message):
        problem(**{**change, **arrays})


@pytest.mark.parametrize(
    ("parents", "message"),
    [
        (np.array([-1, 0, 2**32]), r"parents\[2\] = 4294967296, but a parent is the index"),
        (np.array([2**32 - 1, 0, 0], np.uint32), r"parents\[0\] = 4294967295"),
        (np.array([-1, 0.5, 0]), r"parents\[1\] = 0.5"),
        (np.array([-1, np.nan, 0]), r"parents\[1\] = nan"),
    ],
)
def test_parents_that_are_no_indices_are_refused(parents: np.ndarray, message: str) -> None:
    terms = CostTerms(np.zeros(1), LINE, WEIGHT_S)
    probs = np.full((3, 1, 3), 0.5, np.float32)
    for pricer, predicted in ((RoutingPricer(), ROUTING), (ProbPricer(), probs)):
        with pytest.raises(InvalidTreeError, match=message):
            LevelSearch(pricer).search_tree(terms, parents, PATH_PROBS, predicted, levels=0)
        with pytest.raises(InvalidTreeError, match=message):
            pricer.extend(parents, PATH_PROBS, predicted)
    with pytest.raises(InvalidTreeError, match=message):
        problem(parents=parents)
    with pytest.raises(InvalidTreeError, match=message):
        exact_monotone(parents, PATH_PROBS, lambda mask: 1.0)


@pytest.mark.parametrize("make_pricer", [ProbPricer, RoutingPricer])
def test_a_tree_of_two_dimensions_is_refused(make_pricer) -> None:  # type: ignore[no-untyped-def]
    search = LevelSearch(make_pricer())
    terms = CostTerms(np.zeros(1), LINE, WEIGHT_S)
    predicted = ROUTING if make_pricer is RoutingPricer else np.zeros((3, 1, 3), np.float32)
    for parents, path_probs in ((PARENTS[:, None], PATH_PROBS), (PARENTS, PATH_PROBS[:, None])):
        with pytest.raises(InvalidInputError, match="must have one entry a node"):
            search.search_tree(terms, parents, path_probs, predicted, levels=0)
        search.start(terms)
        with pytest.raises(InvalidInputError, match="must have one entry a node"):
            search.add_level(parents, path_probs, predicted)


def test_an_empty_tree_is_refused() -> None:
    pricer = ProbPricer()
    pricer.start(np.zeros((1, 1)))
    terms = CostTerms(np.zeros(1), LINE, np.zeros((1, 1)))
    with pytest.raises(InvalidTreeError, match=r"at least its root"):
        SearchProblem(np.zeros(0, np.int32), np.zeros(0), pricer.demand(), terms, levels=0)


@pytest.mark.parametrize("price", ["running", -1.0, float("nan"), float("inf"), None])
def test_a_wrong_price_is_refused(price: Any) -> None:
    with pytest.raises(InvalidInputError, match=r"price must be 'cycle' or a finite number"):
        exact(problem(), price=price)
    with pytest.raises(InvalidInputError, match=r"price must be .* tokens a second"):
        LevelSearch(ProbPricer(), price=price)


def test_a_cycle_that_takes_no_time_has_no_rate() -> None:
    free = problem(tau_s=np.zeros(4), weight_s=np.zeros((1, 3)))
    with pytest.raises(InvalidInputError, match=r"a cycle must take time"):
        exact(free)
    assert exact(free, price=1.0).num_nodes == 3


@pytest.mark.parametrize("value", [-0.1, 1.1, np.nan])
@pytest.mark.parametrize("weights", [[[1.0, 0.0, 0.0]], [[1.0, 1.0, 1.0]]])
def test_a_value_that_is_no_probability_is_named(value: float, weights: list[list[float]]) -> None:
    pricer = ProbPricer()
    pricer.start(np.array(weights))
    probs = np.full((3, 1, 3), 0.5, np.float32)
    probs[2, 0, 0] = value
    with pytest.raises(InvalidInputError, match=r"probs\[2, 0, 0\] = "):
        pricer.extend(PARENTS, PATH_PROBS, probs)


def test_probabilities_of_another_shape_are_refused() -> None:
    pricer = ProbPricer()
    pricer.start(WEIGHT_S)
    with pytest.raises(InvalidInputError, match=r"must be \[3, 1, 3\]; got \[3, 1, 2\]"):
        pricer.extend(PARENTS, PATH_PROBS, np.zeros((3, 1, 2), np.float32))
    with pytest.raises(InvalidInputError, match=r"must be \[3, 1, 3\]; got None"):
        pricer.extend(PARENTS, PATH_PROBS, None)


@pytest.mark.parametrize(("bad", "dtype"), [(-1, np.int16), (3, np.int64), (70000, np.int64)])
def test_an_expert_that_does_not_exist_is_named(bad: int, dtype: type) -> None:
    pricer = RoutingPricer()
    pricer.start(WEIGHT_S)
    routing = ROUTING.astype(dtype)
    routing[1, 0, 0] = bad
    with pytest.raises(InvalidInputError, match=r"routing\[1, 0, 0\] = .*expert ids are 0 to 2"):
        pricer.extend(PARENTS, PATH_PROBS, routing)


def test_routing_of_another_shape_is_refused() -> None:
    pricer = RoutingPricer()
    pricer.start(WEIGHT_S)
    with pytest.raises(InvalidInputError, match=r"must be \[3, 1, K\]; got \[2, 1, 1\]"):
        pricer.extend(PARENTS, PATH_PROBS, ROUTING[:2])
    for dtype in (bool, float):
        with pytest.raises(InvalidInputError, match="expert ids, which are integers"):
            pricer.extend(PARENTS, PATH_PROBS, ROUTING.astype(dtype))


def test_a_discount_beyond_one_is_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"discount must be from 0 to 1; got 1.5"):
        ProbPricer(discount=1.5)


def test_the_stop_rule_refuses_what_does_not_fit() -> None:
    asked = problem()
    best = exact(asked)
    everywhere = np.ones(3, bool)
    with pytest.raises(InvalidInputError, match=r"looks 2 levels ahead, but draft_s knows only 1"):
        should_draft(asked, best, np.ones(2), everywhere)
    with pytest.raises(InvalidInputError, match=r"growth\[0\] = 1.5"):
        should_draft(asked, best, np.array([1.5]), everywhere)
    with pytest.raises(InvalidInputError, match=r"growth must be \[J\] or \[3, J\]"):
        should_draft(asked, best, np.ones((2, 1)), everywhere)
    with pytest.raises(InvalidInputError, match=r"expandable"):
        should_draft(asked, best, np.ones(1), everywhere[:2])


def test_a_certificate_and_the_exact_union_need_affine_costs() -> None:
    stepped = problem(tau_s=np.array([0.0, 1.0, 1.0, 2.0, 2.0]))
    with pytest.raises(UnsupportedCostError, match=r"a straight tau_s"):
        certify(stepped, exact(stepped))
    with pytest.raises(UnsupportedCostError, match=r"a straight tau_s"):
        exact_union(stepped, np.zeros((3, 1, 3), np.float32))
    limited = problem(max_nodes=2)
    with pytest.raises(UnsupportedCostError, match=r"limit of 2 of 3 nodes binds: .* has 3"):
        certify(limited, exact(limited, price=0.0))
    with pytest.raises(InvalidInputError, match=r"probs must be \[3, 1, 3\]"):
        exact_union(problem(), np.zeros((3, 1, 2), np.float32))


def test_copy_tables_that_fall_or_do_not_fit_are_refused() -> None:
    units, table = np.ones((1, 3)), np.array([[0.0, 1.0, 0.5]])
    with pytest.raises(InvalidInputError, match=r"layer_s\[0, 2\] = 0.5"):
        CopyTerms(units, table)
    with pytest.raises(
        InvalidInputError, match=r"overlap must be one of none, layer, resident, pass"
    ):
        CopyTerms(units, np.array([[0.0, 1.0]]), "layers")  # type: ignore[arg-type]
    with pytest.raises(InvalidInputError, match=r"units\[0, 1\] = -1.0"):
        CopyTerms(np.array([[1.0, -1.0]]), np.array([[0.0, 1.0]]))
    with pytest.raises(InvalidInputError, match=r"H >= 1"):
        CopyTerms(units, np.zeros((1, 1)))
    with pytest.raises(InvalidInputError, match=r"with the L = 2 of layer_s"):
        CopyTerms(units, np.zeros((2, 2)))
    with pytest.raises(InvalidInputError, match=r"must have the shape of weight_s"):
        CostTerms(np.zeros(1), LINE, WEIGHT_S, CopyTerms(np.ones((1, 2)), np.zeros((1, 2))))


def test_the_running_rate_fades_and_forgets() -> None:
    rate = RunningRate(horizon=2)
    assert rate.price is None
    rate.observe(2, 1.0)
    rate.observe(4, 1.0)
    assert rate.price == (0.5 * 2 + 4) / 1.5
    rate.reset()
    assert rate.price is None
    with pytest.raises(InvalidInputError, match=r"horizon must be at least 1 cycle; got 0"):
        RunningRate(horizon=0)


def test_a_table_without_a_node_is_refused_before_it_is_read() -> None:
    """Its second value is none: what lies behind the array decided whether it was a line."""
    with pytest.raises(InvalidInputError, match=r"tau_s\[1\]; got length 1"):
        LevelSearch(ProbPricer()).start(CostTerms(np.zeros(2), np.zeros(1), WEIGHT_S))
