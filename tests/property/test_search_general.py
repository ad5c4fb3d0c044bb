"""Branch and bound, node limits and costs without terms, against brute force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specfit.core.cost import CostTerms
from specfit.core.errors import InvalidInputError
from specfit.core.search import exact, exact_monotone, exact_union
from tests.reference import brute
from tests.reference.search_cases import Case, cases, tying_case

RELATIVE = 1e-12


def brute_value(case: Case) -> float:
    problem = case.problem
    return brute.best(
        problem.parents,
        problem.path_probs,
        case.seconds,
        price=case.price,
        max_nodes=problem.node_limit,
    )[1]


def slack(case: Case) -> float:
    """What rounding may cost: relative to the terms whose difference the objective is."""
    if case.price is None:
        return 0.0
    most_s = case.seconds(np.ones(len(case.problem), bool))
    return RELATIVE * (len(case.problem) + case.price * most_s)


@settings(max_examples=400)
@given(cases(8, kind="copies", limited=True))
def test_tables_overlap_and_limits_equal_brute_force(case: Case) -> None:
    result = exact(case.problem, price=case.asked)
    assert result.status == "optimal"
    assert result.num_nodes <= case.problem.node_limit
    assert result.objective == pytest.approx(brute_value(case), rel=RELATIVE, abs=slack(case))


@settings(max_examples=400)
@given(cases(8, kind="table", limited=True))
def test_any_table_of_nodes_equals_brute_force(case: Case) -> None:
    result = exact(case.problem, price=case.asked)
    assert result.objective == pytest.approx(brute_value(case), rel=RELATIVE, abs=slack(case))


@settings(max_examples=200)
@given(cases(8, kind="affine", limited=True))
def test_a_node_limit_equals_brute_force(case: Case) -> None:
    result = exact(case.problem, price=case.asked)
    assert result.objective == pytest.approx(brute_value(case), rel=RELATIVE, abs=slack(case))


@settings(max_examples=400)
@given(cases(9, kind="copies"), st.integers(1, 8))
def test_a_table_shorter_than_the_tree_is_a_node_limit(case: Case, limit: int) -> None:
    problem, terms = case.problem, case.problem.terms
    short = CostTerms(terms.draft_s, terms.tau_s[: limit + 1], terms.weight_s, terms.copies)
    result = exact(replace(problem, terms=short), price=case.asked)
    expected = exact(replace(problem, max_nodes=limit), price=case.asked)
    np.testing.assert_array_equal(result.mask, expected.mask)
    assert result.objective == expected.objective


@settings(max_examples=600)
@given(st.builds(tying_case, st.integers(0, 2**32 - 1), st.integers(1, 9)))
def test_of_equal_selections_one_with_the_fewest_nodes_is_chosen(case: Case) -> None:
    problem = case.problem
    mask, value = brute.best(
        problem.parents,
        problem.path_probs,
        case.seconds,
        price=case.price,
        max_nodes=problem.node_limit,
    )
    result = exact(problem, price=case.asked)
    assert result.objective == value
    assert result.num_nodes == mask.sum()


@settings(max_examples=300)
@given(cases(9, kind="copies", limited=True), st.integers(0, 4))
def test_stopped_early_the_bound_still_holds(case: Case, max_expansions: int) -> None:
    result = exact(case.problem, price=case.asked, max_expansions=max_expansions)
    value = brute_value(case)
    tolerance = max(slack(case), RELATIVE * abs(value))
    assert result.objective <= value + tolerance
    assert result.upper_bound >= value - tolerance
    if result.status == "optimal":
        assert result.objective == pytest.approx(value, rel=RELATIVE, abs=slack(case))


@settings(max_examples=200)
@given(cases(8, kind="copies", limited=True), st.integers(0, 40))
def test_a_cost_without_terms_equals_brute_force(case: Case, max_expansions: int) -> None:
    problem = case.problem
    result = exact_monotone(
        problem.parents,
        problem.path_probs,
        case.seconds,
        price=case.asked,
        max_nodes=problem.node_limit,
        max_expansions=max_expansions,
    )
    value = brute_value(case)
    assert result.objective <= value + slack(case)
    assert result.upper_bound >= value - max(slack(case), RELATIVE * abs(value))
    if result.status == "optimal":
        assert result.objective == pytest.approx(value, rel=RELATIVE, abs=slack(case))


def test_a_cost_that_falls_is_refused() -> None:
    parents, path_probs = np.array([-1, 0, 0], np.int32), np.array([1.0, 0.9, 0.1])
    with pytest.raises(InvalidInputError, match=r"falls to 0.5 when node 1 is added"):
        exact_monotone(parents, path_probs, lambda mask: 2.0 - 1.5 * float(mask[1]))
    with pytest.raises(InvalidInputError, match=r"must be finite and above 0; got 0\.0"):
        exact_monotone(parents, path_probs, lambda mask: 0.0)


def test_a_node_limit_of_none_of_the_nodes_is_refused_without_terms_too() -> None:
    parents, path_probs = np.array([-1, 0], np.int32), np.array([1.0, 0.9])
    with pytest.raises(InvalidInputError, match=r"max_nodes counts the root .* got 0"):
        exact_monotone(parents, path_probs, lambda mask: 1.0, max_nodes=0)


@settings(max_examples=150)
@given(cases(7))
def test_the_exact_union_equals_brute_force(case: Case) -> None:
    problem = case.problem
    if case.predicted.dtype != np.float32 or not 1e-3 <= problem.terms.tau_s[1] <= 1e3:
        return
    probs = case.predicted.reshape(len(problem), -1).astype(np.float64)
    weight_s = problem.terms.weight_s.reshape(-1)

    def seconds(mask: np.ndarray) -> float:
        used = 1.0 - (1.0 - probs[mask]).prod(axis=0)
        pass_s = float(problem.terms.tau_s[mask.sum()]) + float(weight_s @ used)
        return problem.draft_s + pass_s

    result = exact_union(problem, case.predicted, price=case.asked)
    _, value = brute.best(problem.parents, problem.path_probs, seconds, price=case.price)
    tolerance = 1e-8 * max(1.0, abs(value))
    assert result.upper_bound >= value - tolerance
    assert result.objective <= value + tolerance
    if result.status == "optimal":
        assert result.objective == pytest.approx(value, abs=tolerance)
