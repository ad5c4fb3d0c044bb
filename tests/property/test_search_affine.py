"""The affine search against brute force, and what must hold of its answers on any tree."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specfit.core.errors import ContractError, UnsupportedCostError
from specfit.core.search import ProbPricer, SearchProblem, certify, evaluate, exact, greedy
from specfit.testing.certificate import check_certificate
from tests.reference import brute
from tests.reference.search_cases import Case, cases

RELATIVE = 1e-12


def scale(case: Case) -> float:
    """Size of the terms whose difference the objective is."""
    if case.price is None:
        return 0.0
    return len(case.problem) + case.price * case.seconds(np.ones(len(case.problem), bool))


@settings(max_examples=1500)
@given(cases(8))
def test_equals_brute_force(case: Case) -> None:
    result = exact(case.problem, price=case.asked)
    _, value = brute.best(
        case.problem.parents, case.problem.path_probs, case.seconds, price=case.price
    )
    assert result.status == "optimal"
    assert result.objective == pytest.approx(value, rel=RELATIVE, abs=RELATIVE * scale(case))


@settings(max_examples=100)
@given(cases(12))
def test_equals_brute_force_on_larger_trees(case: Case) -> None:
    result = exact(case.problem, price=case.asked)
    _, value = brute.best(
        case.problem.parents, case.problem.path_probs, case.seconds, price=case.price
    )
    assert result.objective == pytest.approx(value, rel=RELATIVE, abs=RELATIVE * scale(case))


@settings(max_examples=1000)
@given(cases(8, dyadic=True))
def test_of_equal_selections_the_smallest_is_chosen(case: Case) -> None:
    result = exact(case.problem, price=case.asked)
    mask, value = brute.best(
        case.problem.parents, case.problem.path_probs, case.seconds, price=case.price
    )
    assert result.mask.tolist() == mask.tolist()
    assert result.objective == value


@settings(max_examples=300)
@given(cases(40))
def test_the_answer_is_legal_and_its_numbers_are_its_own(case: Case) -> None:
    problem = case.problem
    result = exact(problem, price=case.asked)
    assert result.mask[0]
    assert not (result.mask[1:] & ~result.mask[problem.parents[1:]]).any()
    tokens, seconds = evaluate(problem, result.mask)
    assert result.expected_committed == pytest.approx(tokens, rel=RELATIVE)
    assert result.cycle_s == pytest.approx(seconds, rel=RELATIVE)
    objective = tokens / seconds if case.price is None else tokens - case.price * seconds
    assert result.objective == pytest.approx(objective, rel=RELATIVE, abs=RELATIVE * scale(case))
    assert result.upper_bound >= result.objective
    assert greedy(problem, price=case.asked).objective <= result.objective + RELATIVE * max(
        scale(case), result.objective
    )


@settings(max_examples=200)
@given(cases(16))
def test_no_branch_added_or_removed_improves_it(case: Case) -> None:
    problem = case.problem
    result = exact(problem, price=case.asked)
    for node in range(1, len(problem)):
        other = result.mask.copy()
        if other[node]:
            other[node] = False
            for child in range(node + 1, len(problem)):
                other[child] &= other[problem.parents[child]]
        else:
            ancestor = node
            while not other[ancestor]:
                other[ancestor] = True
                ancestor = int(problem.parents[ancestor])
        tokens, seconds = evaluate(problem, other)
        value = tokens / seconds if case.price is None else tokens - case.price * seconds
        slack = RELATIVE * max(scale(case), abs(result.objective))
        assert value <= result.objective + slack


@settings(max_examples=300)
@given(cases(30), st.lists(st.floats(0.0, 3.0), min_size=2, max_size=5))
def test_optima_are_nested_in_the_price(case: Case, factors: list[float]) -> None:
    unit = 1.0 / float(case.problem.terms.tau_s[1])
    masks = [exact(case.problem, price=f * unit).mask for f in sorted(factors)]
    assert all((wide | ~narrow).all() for wide, narrow in pairwise(masks))


@settings(max_examples=200)
@given(cases(9, dyadic=True), st.randoms(use_true_random=False))
def test_relabelling_the_nodes_permutes_the_answer(case: Case, random: object) -> None:
    problem = case.problem
    order = [0]
    waiting = [v for v in range(len(problem)) if problem.parents[v] == 0]
    while waiting:
        node = waiting.pop(random.randrange(len(waiting)))  # type: ignore[attr-defined]
        order.append(node)
        waiting += [v for v in range(len(problem)) if problem.parents[v] == node]
    place = np.argsort(order)
    parents = np.array([-1, *place[problem.parents[order[1:]]]], np.int32)
    rows = problem.demand.rows()[order].astype(np.float32)
    demand = replace(
        problem.demand,
        indptr=np.zeros(0, np.int64),
        cols=np.zeros(0, np.int32),
        vals=rows.reshape(-1),
        full_s=problem.demand.full_s[order],
    )
    moved = SearchProblem(parents, problem.path_probs[order], demand, problem.terms, problem.levels)
    before, after = exact(problem, price=case.asked), exact(moved, price=case.asked)
    assert after.mask.tolist() == before.mask[order].tolist()


@settings(max_examples=200)
@given(cases(10))
def test_what_a_selection_costs_is_monotone_and_submodular(case: Case) -> None:
    rows, weight_s = case.problem.demand.rows(), case.problem.demand.weight_s

    def columns_s(mask: np.ndarray) -> float:
        return float(weight_s @ np.minimum(1.0, rows[mask].sum(axis=0)))

    rng = np.random.default_rng(len(rows))
    slack = 1e-9 * (columns_s(np.ones(len(rows), bool)) + 1e-300)
    for _ in range(20):
        a, b = rng.random(len(rows)) < 0.5, rng.random(len(rows)) < 0.5
        assert columns_s(a) <= columns_s(a | b) + slack
        assert columns_s(a) + columns_s(b) >= columns_s(a | b) + columns_s(a & b) - slack


@settings(max_examples=300)
@given(cases(30))
def test_the_certificate_holds(case: Case) -> None:
    result = exact(case.problem, price=case.asked)
    check_certificate(case.problem, result, certify(case.problem, result))


@settings(max_examples=200)
@given(cases(12), st.integers(1, 12))
def test_a_node_limit_is_certified_where_it_does_not_bind(case: Case, limit: int) -> None:
    limited = replace(case.problem, max_nodes=limit)
    result = exact(limited, price=case.asked)
    if exact(case.problem, price=case.asked).num_nodes <= limit:
        check_certificate(limited, result, certify(limited, result))
    else:
        with pytest.raises(UnsupportedCostError, match=r"binds: the best selection without it"):
            certify(limited, result)


@settings(max_examples=300)
@given(
    cases(12),
    st.sampled_from(
        ["share", "price", "selection", "objective", "expected_committed", "cycle_s", "rate"]
    ),
)
def test_an_altered_certificate_is_refused(case: Case, what: str) -> None:
    result = exact(case.problem, price=case.asked)
    certificate = certify(case.problem, result)
    if what == "share":
        paid = certificate.shares * result.mask[:, None]
        if not paid.size or paid.max() < 1e-6:
            return
        node, column = np.unravel_index(int(np.argmax(paid)), paid.shape)
        shares = certificate.shares.copy()
        shares[node, column] -= max(1e-6, 1e-6 * shares[node, column])
        certificate = replace(certificate, shares=shares)
    elif what == "price":
        if result.price == 0.0:
            return
        certificate = replace(certificate, price=certificate.price * (1.0 + 1e-6))
    elif what == "rate":  # slower, and fewer tokens a second: their product is the same
        if result.price == 0.0:
            return
        more = 1.0 + 1e-6
        result = replace(result, price=result.price / more, cycle_s=result.cycle_s * more)
    elif what != "selection":
        said = getattr(result, what)
        least = 0.0 if result.is_ratio or what == "cycle_s" else 1e-6
        altered = said + max(least, 1e-6 * abs(said))
        if altered == said:
            return
        result = replace(result, **{what: altered})
    else:
        everything = np.ones(len(result.mask), bool)
        if result.mask.all() or case.problem.path_probs[~result.mask].max() < 1e-6:
            return
        result = replace(result, mask=everything)
    with pytest.raises(ContractError):
        check_certificate(case.problem, result, certificate)


@settings(max_examples=300)
@given(cases(12))
def test_priced_level_by_level_or_at_once_is_the_same(case: Case) -> None:
    problem = case.problem
    if case.predicted.dtype != np.float32:
        return
    pricer = ProbPricer(case.discount)
    pricer.start(problem.terms.weight_s)
    for end in range(1, len(problem) + 1):
        parents, path_probs = problem.parents[:end], problem.path_probs[:end]
        pricer.extend(parents, path_probs, case.predicted[end - 1 : end])
    demand = pricer.demand()
    assert np.array_equal(demand.rows(), problem.demand.rows())
    assert np.array_equal(demand.full_s, problem.demand.full_s)
    exact_rows = brute.path_conditional(problem.parents, case.predicted.astype(np.float64))
    exact_rows = exact_rows.reshape(len(problem), -1)[:, demand.experts]
    kept = 1.0 - case.discount * problem.path_probs
    assert np.allclose(demand.rows(), exact_rows * kept[:, None], atol=1e-6)
