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


@pytest.mark.parametrize("parents", [[-1, 1], [-1, -1], [0, 0], [-1, 5]])
def test_what_is_no_tree_is_refused_before_hard_sets_are_priced(parents: list[int]) -> None:
    pricer = RoutingPricer()
    pricer.start(np.ones((1, 2)))
    with pytest.raises(InvalidTreeError, match=r"parents\["):
        pricer.extend(
            np.array(parents, np.int32), np.array([1.0, 0.5]), np.zeros((2, 1, 1), np.int16)
        )


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
        draft = at_once.advance(*level, growth, expandable)
        in_steps.add_level(*level)
        assert draft == in_steps.should_draft(growth, expandable).draft
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


def test_warm_up_leaves_nothing_to_compile() -> None:
    warm_up()
    warm_up()
