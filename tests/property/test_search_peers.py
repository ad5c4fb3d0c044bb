"""The affine search against solvers of others on trees too large for brute force."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from specfit.core.search import SearchProblem, certify, exact
from specfit.testing.certificate import check_certificate
from tests.reference import closure, recorded
from tests.reference.search_cases import Case, cases


def is_tame(case: Case) -> bool:
    """Whether the numbers are of a size that solvers with absolute tolerances can handle."""
    return bool(1e-4 <= case.problem.terms.tau_s[1] <= 10.0)


def at_its_price(problem: SearchProblem) -> tuple[float, float]:
    """Return the best rate, and a price a little below it, where the gain is away from 0."""
    rate = exact(problem).objective
    return rate, 0.9 * rate


@settings(max_examples=120)
@given(cases(30))
def test_equals_a_networkx_minimum_cut(case: Case) -> None:
    if not is_tame(case):
        return
    rate, price = at_its_price(case.problem)
    assert closure.by_minimum_cut(case.problem, rate) == pytest.approx(0.0, abs=1e-9)
    result = exact(case.problem, price=price)
    assert closure.by_minimum_cut(case.problem, price) == pytest.approx(result.objective, abs=1e-9)


@settings(max_examples=60)
@given(cases(30))
def test_equals_a_highs_milp(case: Case) -> None:
    if not is_tame(case):
        return
    rate, price = at_its_price(case.problem)
    assert closure.by_milp(case.problem, rate) == pytest.approx(0.0, abs=1e-6)
    result = exact(case.problem, price=price)
    assert closure.by_milp(case.problem, price) == pytest.approx(result.objective, abs=1e-6)


RECORDED = [(name, hard) for name in recorded.NAMES for hard in (True, False)]


@pytest.mark.parametrize(("name", "hard"), RECORDED)
def test_equals_a_networkx_minimum_cut_on_recorded_trees(name: str, hard: bool) -> None:
    problem = recorded.problem(name, 64 if hard else 24, hard=hard)
    _, price = at_its_price(problem)
    gain = closure.by_minimum_cut(problem, price)
    assert gain == pytest.approx(exact(problem, price=price).objective, abs=1e-9)


@pytest.mark.parametrize(("name", "hard"), RECORDED)
def test_equals_a_highs_milp_on_recorded_trees(name: str, hard: bool) -> None:
    problem = recorded.problem(name, 24 if hard else 14, hard=hard)
    _, price = at_its_price(problem)
    gain = closure.by_milp(problem, price)
    assert gain == pytest.approx(exact(problem, price=price).objective, abs=1e-6)


@pytest.mark.parametrize(("name", "hard"), RECORDED)
def test_the_certificate_holds_on_recorded_trees(name: str, hard: bool) -> None:
    problem = recorded.problem(name, 64, hard=hard)
    result = exact(problem)
    assert result.num_nodes > 1 or name.startswith("25%")
    check_certificate(problem, result, certify(problem, result))


def test_the_references_agree_on_a_tree_worked_by_hand() -> None:
    """Two children share a dear expert: together they pay, alone neither does."""
    from specfit.core.cost import CostTerms
    from specfit.core.search import RoutingPricer

    weight_s = np.array([[0.0, 1.0]])
    parents, path_probs = np.array([-1, 0, 0], np.int32), np.array([1.0, 0.5, 0.5])
    pricer = RoutingPricer()
    pricer.start(weight_s)
    pricer.extend(parents, path_probs, np.array([[[0]], [[1]], [[1]]], np.int16))
    terms = CostTerms(np.zeros(1), np.array([0.0, 1.0, 1.0, 1.0]), weight_s)
    problem = SearchProblem(parents, path_probs, pricer.demand(), terms, levels=0)
    assert closure.by_minimum_cut(problem, 0.75) == pytest.approx(2.0 - 0.75 * 2.0)
    assert closure.by_milp(problem, 0.75) == pytest.approx(0.5)
    assert exact(problem, price=0.75).objective == 0.5
