"""The search that grows with the draft."""

from __future__ import annotations

import numpy as np
import pytest

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


def test_warm_up_leaves_nothing_to_compile() -> None:
    warm_up()
    warm_up()
