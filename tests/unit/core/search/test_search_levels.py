"""The search that grows with the draft."""

from __future__ import annotations

import numpy as np
import pytest

from specfit.core.cost import CostTerms
from specfit.core.errors import InvalidInputError, InvalidTreeError
from specfit.core.search import (
    LevelSearch,
    ProbPricer,
    RoutingPricer,
    SearchProblem,
    exact,
    warm_up,
)
from specfit.core.search._affine import RATIO
from specfit.core.search._rows import rows_of
from specfit.core.search._sharing import Task, keep_charges
from tests.reference.search_cases import random_case


@pytest.mark.parametrize("seed", range(30))
def test_each_level_answers_as_if_it_were_searched_alone(seed: int) -> None:
    case = random_case(seed, 20)
    problem = case.problem
    is_hard = case.predicted.dtype == np.int16
    search = LevelSearch(
        RoutingPricer() if is_hard else ProbPricer(case.discount), price=case.asked
    )
    search.start(problem.terms)
    for level, end in enumerate((1, 4, 11, 20)):
        first = (0, 1, 4, 11)[level]
        parents, path_probs = problem.parents[:end], problem.path_probs[:end]
        search.add_level(parents, path_probs, case.predicted[first:end])
        pricer = RoutingPricer() if is_hard else ProbPricer(case.discount)
        pricer.start(problem.terms.weight_s)
        pricer.extend(parents, path_probs, case.predicted[:end])
        alone = SearchProblem(parents, path_probs, pricer.demand(), problem.terms, level)
        result = search.best()
        assert result.objective == exact(alone, price=case.asked).objective
        assert search.problem.levels == level
        assert search.best() is result


@pytest.mark.parametrize("is_one_call", [True, False])
@pytest.mark.parametrize("seed", range(20))
def test_levels_between_need_not_be_asked_of(seed: int, is_one_call: bool) -> None:
    case = random_case(seed, 20)
    problem, terms = case.problem, case.problem.terms
    if is_one_call:
        terms = CostTerms(terms.draft_s, np.append(0.0, 1.0 + 0.1 * np.arange(20)), terms.weight_s)
    searches = []
    for stops in (((0, 1), (1, 4), (4, 11), (11, 20)), ((0, 1), (1, 11), (11, 20))):
        is_hard = case.predicted.dtype == np.int16
        search = LevelSearch(
            RoutingPricer() if is_hard else ProbPricer(case.discount), price=case.asked
        )
        search.start(terms)
        for first, end in stops:
            level = problem.parents[:end], problem.path_probs[:end], case.predicted[first:end]
            num_new = 2 if (first, end) == (1, 11) else 1
            search.advance(*level, np.zeros(0), np.zeros(end, bool), num_new=num_new)
        searches.append(search)
    asked, skipped = searches
    assert skipped.problem.levels == asked.problem.levels == 3
    assert skipped.best().objective == pytest.approx(asked.best().objective, rel=1e-12)
    np.testing.assert_array_equal(skipped.best().mask, asked.best().mask)


@pytest.mark.parametrize("seed", range(60))
def test_search_tree_is_exact(seed: int) -> None:
    case = random_case(seed, 20)
    problem, terms = case.problem, case.problem.terms
    if seed % 3:  # most cases under affine costs
        terms = CostTerms(terms.draft_s, np.append(0.0, 1.0 + 0.1 * np.arange(20)), terms.weight_s)
    is_hard = case.predicted.dtype == np.int16
    pricer = RoutingPricer() if is_hard else ProbPricer(case.discount)
    pricer.start(terms.weight_s)
    pricer.extend(problem.parents, problem.path_probs, case.predicted)
    levels = seed % len(terms.draft_s)
    alone = SearchProblem(problem.parents, problem.path_probs, pricer.demand(), terms, levels)
    expected = exact(alone, price=case.asked)
    search = LevelSearch(pricer, price=case.asked)
    for _ in range(2):
        found = search.search_tree(
            terms, problem.parents, problem.path_probs, case.predicted, levels=levels
        )
        np.testing.assert_array_equal(found.mask, expected.mask)
        assert found.objective == pytest.approx(expected.objective, rel=1e-12)
    with pytest.raises(InvalidInputError, match="levels must be from 0"):
        search.search_tree(
            terms, problem.parents, problem.path_probs, case.predicted, levels=len(terms.draft_s)
        )


@pytest.mark.parametrize(
    "parents", [[-1, 1], [-1, -1], [0, 0], [-1, 5], [-1, 10**9], [-1, -(10**9)]]
)
@pytest.mark.parametrize("make_pricer", [ProbPricer, RoutingPricer])
def test_what_is_no_tree_is_refused_before_it_is_priced(make_pricer, parents) -> None:  # type: ignore[no-untyped-def]
    pricer = make_pricer()
    pricer.start(np.ones((1, 1)))
    predicted = np.zeros((2, 1, 1), np.int16 if make_pricer is RoutingPricer else np.float32)
    with pytest.raises(InvalidTreeError, match=r"parents\["):
        pricer.extend(np.array(parents, np.int32), np.array([1.0, 0.5]), predicted)
    with pytest.raises(InvalidInputError, match=r"got \[2\] and \[1\]"):
        pricer.extend(np.array([-1, 0], np.int32), np.ones(1), predicted)


@pytest.mark.parametrize("seed", range(60))
def test_advance_is_add_level_then_should_draft(seed: int) -> None:
    rng = np.random.default_rng(seed)
    case = random_case(seed, 20)
    problem = case.problem
    terms = problem.terms
    if seed % 3:  # most cases under affine costs
        terms = CostTerms(
            terms.draft_s, np.maximum(0.0, 1.0 + 0.1 * np.arange(-10, 20)), terms.weight_s
        )
    max_nodes = None if seed % 4 else 3

    def new_search() -> LevelSearch:
        is_hard = case.predicted.dtype == np.int16
        pricer = RoutingPricer() if is_hard else ProbPricer(case.discount)
        search = LevelSearch(pricer, price=case.asked)
        search.start(terms, max_nodes=max_nodes)
        return search

    at_once, in_steps = new_search(), new_search()
    levels_left = len(terms.draft_s) - 1
    for first, end in ((0, 1), (1, 4), (4, 11), (11, 20)):
        level = (problem.parents[:end], problem.path_probs[:end], case.predicted[first:end])
        growth, expandable = rng.random(levels_left), rng.random(end) < 0.5
        ahead = at_once.advance(*level, growth, expandable)
        in_steps.add_level(*level)
        assert ahead == in_steps.should_draft(growth, expandable).levels_ahead
        np.testing.assert_array_equal(at_once.best().mask, in_steps.best().mask)
        assert at_once.best().objective == pytest.approx(in_steps.best().objective, rel=1e-12)
        levels_left -= 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"parents": np.array([-1, 1], np.int32)}, r"parents\[1\] = 1"),
        ({"path_probs": np.array([0.5, 0.6])}, r"path_probs\[1\] = 0.6 is above"),
        ({"predicted": np.full((2, 1, 2), 1.5, np.float32)}, r"probs\[0, 0, 0\] = 1.5"),
        ({"predicted": np.full((2, 2, 2), 0.5, np.float32)}, r"must be \[2, 1, 2\]"),
        ({"growth": np.array([1.5])}, r"growth\[0\] = 1.5"),
        ({"growth": np.ones(4)}, "looks 4 levels ahead"),
        ({"expandable": np.ones(1, bool)}, r"expandable \[2\]"),
    ],
)
def test_advance_refuses_what_is_wrong(change: dict[str, np.ndarray], words: str) -> None:
    search = LevelSearch(ProbPricer())
    search.start(CostTerms(np.zeros(3), np.array([0.0, 1.0, 2.0]), np.ones((1, 2))))
    right = {
        "parents": np.array([-1, 0], np.int32),
        "path_probs": np.array([1.0, 0.5]),
        "predicted": np.full((2, 1, 2), 0.5, np.float32),
        "growth": np.ones(2),
        "expandable": np.ones(2, bool),
    }
    with pytest.raises((InvalidInputError, InvalidTreeError), match=words):
        search.advance(**(right | change))


def test_a_refused_level_of_hard_sets_leaves_nothing_behind() -> None:
    search = LevelSearch(RoutingPricer())
    terms = CostTerms(np.zeros(3), np.array([0.0, 1.0, 2.0]), np.ones((1, 2)))
    root = np.array([-1], np.int32), np.ones(1), np.zeros((1, 1, 1), np.int16)
    growth, expandable = np.ones(1), np.ones(1, bool)
    wrong = (
        ((np.array([0], np.int32), *root[1:], growth), r"parents\[0\]"),
        ((*root[:2], np.full((1, 1, 1), 2, np.int16), growth), r"routing\[0, 0, 0\] = 2"),
        ((*root[:2], np.zeros((2, 1, 1), np.int16), growth), r"must be \[1, 1, K\]"),
        ((*root, np.array([1.5])), r"growth\[0\] = 1.5"),
    )
    for level, words in wrong:
        search.start(terms)
        with pytest.raises((InvalidInputError, InvalidTreeError), match=words):
            search.advance(*level, expandable)
        assert search.pricer.num_nodes == 0
    search.start(terms)
    assert search.advance(*root, growth, expandable)  # 2 tokens in 3 s against 1 in 2 s
    assert search.best().cycle_s == 2.0


WRONG_LEVEL = ("parents", "path_probs", "predicted", "shape", "growth", "levels")


@pytest.mark.parametrize("wrong", WRONG_LEVEL)
@pytest.mark.parametrize("seed", range(12))
def test_after_a_refused_level_the_right_one_is_answered(seed: int, wrong: str) -> None:
    case = random_case(seed, 20)
    problem = case.problem
    is_hard = case.predicted.dtype == np.int16
    tau_s = np.append(0.0, 1.0 + 0.1 * np.arange(20 + seed % 2))
    tau_s[-1] += seed % 2  # every other table is no line
    terms = CostTerms(problem.terms.draft_s, tau_s, np.ones(problem.terms.weight_s.shape))
    searches = []
    for _ in range(2):
        search = LevelSearch(RoutingPricer() if is_hard else ProbPricer(case.discount))
        search.start(terms)
        searches.append(search)
    disturbed, plain = searches
    for first, end in ((0, 1), (1, 6), (6, 20)):
        level = {
            "parents": problem.parents[:end],
            "path_probs": problem.path_probs[:end],
            "predicted": case.predicted[first:end],
        }
        look = {"growth": np.ones(1), "expandable": np.ones(end, bool)}
        bad = {name: array.copy() for name, array in (level | look).items()}
        if wrong == "shape":
            bad["predicted"] = bad["predicted"][:, :-1]
        elif wrong == "levels":
            bad["growth"] = np.ones(len(terms.draft_s))
        else:
            bad[wrong].reshape(-1)[-1] = 99
        with pytest.raises((InvalidInputError, InvalidTreeError)):
            disturbed.advance(**bad)
        if wrong not in ("growth", "levels"):
            with pytest.raises((InvalidInputError, InvalidTreeError)):
                disturbed.add_level(*(bad[name] for name in level))
        assert disturbed.advance(**level, **look) == plain.advance(**level, **look)
        found, expected = disturbed.best(), plain.best()
        np.testing.assert_array_equal(found.mask, expected.mask)
        assert found.objective == expected.objective
        demand, untouched = disturbed.problem.demand, plain.problem.demand
        np.testing.assert_array_equal(demand.totals, untouched.totals)
        assert disturbed.problem.levels == plain.problem.levels


@pytest.mark.parametrize("seed", range(12))
def test_neither_the_order_in_memory_nor_an_empty_level_matters(seed: int) -> None:
    case = random_case(seed, 20)
    problem = case.problem
    is_hard = case.predicted.dtype == np.int16
    terms = CostTerms(np.zeros(5), np.append(0.0, 1.0 + 0.1 * np.arange(20)), np.ones((2, 9)))
    rng = np.random.default_rng(seed)
    predicted = rng.integers(0, 9, (20, 2, 3)).astype(np.int16)
    if not is_hard:
        predicted = rng.random((20, 2, 9)).astype(np.float32)
    answers = []
    for order in ("C", "F"):
        search = LevelSearch(RoutingPricer() if is_hard else ProbPricer())
        search.start(terms)
        for first, end in ((0, 1), (1, 8), (8, 8), (8, 20)):
            parents, path_probs = problem.parents[:end], problem.path_probs[:end]
            new = np.array(predicted[first:end], order=order)
            new.setflags(write=order == "C")
            growth, expandable = np.ones(1), np.ones(end, bool)
            by_node = growth if order == "C" else np.ones((end, 1))
            draft = search.advance(parents, path_probs, new, by_node, expandable)
            answers.append((draft, search.best().objective, search.best().mask.tolist()))
    assert answers[:4] == answers[4:]


def large_case(seed: int, shape: str) -> tuple[CostTerms, np.ndarray, np.ndarray, np.ndarray]:
    """Draw terms, parents, path probabilities and routing of 60 nodes that share many experts."""
    rng = np.random.default_rng(seed)
    nodes, layers, experts = 60, 4, 12
    above = {
        "chain": np.arange(nodes) - 1,
        "star": np.array([-1] + [0] * (nodes - 1)),
        "bushy": np.append(-1, (rng.random(nodes - 1) * np.arange(1, nodes)).astype(int)),
    }
    parents = above[shape].astype(np.int32)
    path_probs = np.ones(nodes)
    for node in range(1, nodes):
        path_probs[node] = path_probs[parents[node]] * rng.uniform(0.2, 1.0)
    routing = rng.integers(0, experts, (nodes, layers, 2)).astype(np.int16)
    weight_s = rng.random((layers, experts)) * (rng.random((layers, experts)) < 0.5)
    tau_s = np.append(0.0, 1.0 + 0.02 * np.arange(nodes))
    scale = float(rng.choice([0.01, 0.1, 1.0]))
    return CostTerms(np.zeros(2), tau_s, scale * weight_s), parents, path_probs, routing


@pytest.mark.parametrize("shape", ["chain", "star", "bushy"])
@pytest.mark.parametrize("seed", range(8))
def test_nodes_that_were_not_read_change_neither_answer_nor_demand(seed: int, shape: str) -> None:
    terms, parents, path_probs, routing = large_case(seed, shape)
    whole = RoutingPricer()
    whole.start(terms.weight_s)
    whole.extend(parents, path_probs, routing)
    problem = SearchProblem(parents, path_probs, whole.demand(), terms, levels=0)
    search = LevelSearch(RoutingPricer())
    for price in ("cycle", 0.5 * exact(problem).price):
        search.price = price
        found = search.search_tree(terms, parents, path_probs, routing, levels=0)
        expected = exact(problem, price=price)
        np.testing.assert_array_equal(found.mask, expected.mask)
        assert found.objective == pytest.approx(expected.objective, rel=1e-12)
        np.testing.assert_array_equal(search.problem.demand.rows(), problem.demand.rows())
        np.testing.assert_array_equal(search.problem.demand.experts, problem.demand.experts)


def test_a_listener_hears_each_decision() -> None:
    search = LevelSearch(ProbPricer())
    search.start(CostTerms(np.zeros(3), np.array([0.0, 1.0, 2.0]), np.ones((1, 2))))
    root = np.array([-1], np.int32), np.ones(1), np.full((1, 1, 2), 0.5, np.float32)
    heard: list[bool] = []
    search.listener = lambda decision: heard.append(decision.draft)
    answer = search.advance(*root, np.ones(1), np.ones(1, bool))
    assert heard == [answer]


def test_path_probabilities_of_another_length_are_refused() -> None:
    search = LevelSearch(RoutingPricer())
    terms = CostTerms(np.zeros(1), np.array([0.0, 1.0, 2.0]), np.ones((1, 2)))
    parents, routing = np.array([-1, 0], np.int32), np.zeros((2, 1, 1), np.int16)
    with pytest.raises(InvalidInputError, match=r"got \[2\] and \[1\]"):
        search.search_tree(terms, parents, np.ones(1), routing, levels=0)


def test_warm_up_leaves_nothing_to_compile() -> None:
    warm_up()
    warm_up()


@pytest.mark.parametrize("seed", range(40))
def test_a_re_priced_selection_is_answered_from_charges_that_no_selection_undercuts(
    seed: int,
) -> None:
    rng = np.random.default_rng(seed)
    parents = np.append(-1, np.maximum(rng.integers(-20, 40, 39) % np.arange(1, 40), 0))
    parents = np.sort(parents).astype(np.int32)
    path_probs = np.ones(40)
    for node in range(1, 40):
        path_probs[node] = path_probs[parents[node]] * rng.random()
    routing = rng.integers(0, 16, (40, 3, 4)).astype(np.int16)
    weight_s = rng.random((3, 16)) * (rng.random((3, 16)) < rng.random())
    terms = CostTerms(0.1 * np.arange(9), np.append(0.0, 1.0 + 0.05 * np.arange(60)), weight_s)
    price = ("cycle", 0.2)[seed % 2]
    search = LevelSearch(RoutingPricer(), price=price)
    search.start(terms)
    ids = routing + 16 * np.arange(3)[:, None]
    for level, (first, end) in enumerate([(0, 1), (1, 6), (6, 14), (14, 22), (22, 31), (31, 40)]):
        tree = parents[:end], path_probs[:end]
        search.advance(*tree, routing[first:end], np.zeros(0), np.ones(end, bool))
        pricer = RoutingPricer()
        pricer.start(weight_s)
        pricer.extend(*tree, routing[:end])
        alone = exact(SearchProblem(*tree, pricer.demand(), terms, level), price=price)
        found = search.best()
        np.testing.assert_array_equal(found.mask, alone.mask)
        assert found.objective == pytest.approx(alone.objective, rel=1e-12)
        charged_s = search.pricer._memory.charged_s
        for _ in range(10):
            chosen = np.arange(end) == 0
            for node in range(1, end):
                chosen[node] = chosen[parents[node]] and rng.random() < 0.7
            needed = np.setdiff1d(ids[:end][chosen], ids[0])
            cost_s = weight_s.reshape(-1)[needed].sum()
            assert charged_s[:end][chosen][1:].sum() <= cost_s * (1 + 1e-12)


def test_of_the_dropped_nodes_the_first_is_charged_what_no_node_of_the_proof_needs() -> None:
    indptr = np.array([0, 1, 2, 4, 5])
    cols = np.array([0, 1, 1, 2, 2], np.int32)
    rows = rows_of(indptr, cols, np.ones(5, np.float32), np.array([1.0, 2.0, 4.0]))
    parents = np.array([-1, 0, 0, 0], np.int32)
    task = Task(parents, np.ones(4), 0.0, 1.0, rows, np.zeros(3), RATIO)
    live, seconds = np.array([True, False, False, True]), np.array([2.0, 9.0, 9.0, 5.0])
    charged_s = np.full(4, 9.0)
    keep_charges(task, live, seconds, np.empty(3), charged_s)
    assert charged_s.tolist() == [1.0, 2.0, 0.0, 4.0]
