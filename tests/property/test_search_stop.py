"""The stop rule: equal to a search with phantom nodes, and a certificate under its conditions."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specfit.core.cost import CostTerms
from specfit.core.errors import InvalidInputError
from specfit.core.search import LevelSearch, RoutingPricer, exact, should_draft
from specfit.core.search.phantoms import with_phantoms
from tests.reference.search_cases import Case, cases, random_path_probs, random_predictions

TOLERANCE = 1e-11


@settings(max_examples=400)
@given(cases(9), st.integers(0, 2**32 - 1))
def test_equals_a_search_with_phantom_nodes(case: Case, seed: int) -> None:
    rng = np.random.default_rng(seed)
    problem = case.problem
    left = len(problem.terms.draft_s) - 1 - problem.levels
    ahead = int(rng.integers(0, left + 1))
    growth = rng.random((len(problem), ahead)) ** rng.choice([0.2, 1.0])
    expandable = rng.random(len(problem)) < 0.6
    count = len(problem) + ahead * int(expandable.sum())
    node_s = float(np.diff(problem.terms.tau_s[1:]).max(initial=0.0))
    tau_s = problem.terms.tau_s[1] + node_s * np.arange(-1, count)
    tau_s[0] = 0.0
    terms = CostTerms(problem.terms.draft_s, tau_s, problem.terms.weight_s)
    problem = type(problem)(
        problem.parents, problem.path_probs, problem.demand, terms, problem.levels
    )
    best = exact(problem, price=case.asked)
    bar = 0.0 if case.price is None else best.objective
    decision = should_draft(problem, best, growth, expandable)
    size = len(problem) + best.price * best.cycle_s
    gains = [
        exact(with_phantoms(problem, growth, expandable, j), price=best.price).objective - bar
        for j in range(1, ahead + 1)
    ]
    if any(abs(gain) <= TOLERANCE * size for gain in gains):
        return
    wins = [j for j, gain in enumerate(gains, 1) if gain > 0]
    assert decision.draft == bool(wins)
    assert (decision.levels_ahead in wins) if wins else decision.levels_ahead == 0


def grow(rng: np.random.Generator, levels: int) -> tuple[list[np.ndarray], np.ndarray]:
    """Draw a tree of which only the newest nodes get children; return sizes and parents."""
    parents, sizes, newest = [-1], [1], [0]
    for _ in range(levels):
        drawn = [p for p in newest for _ in range(int(rng.integers(0, 3)))][:6]
        newest = list(range(len(parents), len(parents) + len(drawn)))
        parents += drawn
        sizes.append(len(parents))
    return sizes, np.array(parents, np.int32)


@settings(max_examples=400)
@given(st.integers(0, 2**32 - 1))
def test_a_certified_stop_is_never_wrong(seed: int) -> None:
    """Draft on to full depth anyway: no deeper tree beats the level at which the rule says stop."""
    rng = np.random.default_rng(seed)
    levels = int(rng.integers(1, 5))
    sizes, parents = grow(rng, levels)
    path_probs = random_path_probs(rng, parents, dyadic=False)
    shape = (2, 4)
    predicted = random_predictions(rng, len(parents), shape, True, False)
    weight_s = rng.random(shape) * rng.choice([0.05, 0.3])
    tau_s = 0.1 + rng.random() * 0.1 * np.arange(60)
    tau_s[0] = 0.0
    draft_s = np.cumsum(np.concatenate([[0.0], rng.random(levels) * rng.choice([0.05, 0.5])]))
    terms = CostTerms(draft_s, tau_s, weight_s)
    search = LevelSearch(RoutingPricer(), price="cycle" if rng.random() < 0.5 else 3.0)
    search.start(terms)
    values, stops = [], []
    for level, size in enumerate(sizes):
        first = sizes[level - 1] if level else 0
        search.add_level(parents[:size], path_probs[:size], predicted[first:size])
        newest = np.arange(size) >= first
        certain = np.ones(levels - level)
        stops.append(not search.should_draft(certain, newest).draft)
        values.append(search.best().objective)
    for level, stop in enumerate(stops):
        if stop:
            assert max(values[level:]) <= values[level] + 1e-9


def two_levels(
    path_probs: list[float], parents: list[int], draft_s: list[float], cut: int
) -> tuple[LevelSearch, np.ndarray, np.ndarray, CostTerms]:
    """Return a search of the first `cut` nodes, and the whole tree; a pass takes 1 s."""
    tau_s = np.full(40, 1.0)
    tau_s[0] = 0.0
    terms = CostTerms(np.array(draft_s), tau_s, np.zeros((1, 1)))
    search = LevelSearch(RoutingPricer())
    search.start(terms)
    tree, probs = np.array(parents, np.int32), np.array(path_probs)
    routing = np.zeros((len(tree), 1, 1), np.int16)
    search.add_level(tree[:1], probs[:1], routing[:1])
    if cut > 1:
        search.add_level(tree[:cut], probs[:cut], routing[1:cut])
    return search, tree, probs, terms


def deeper(search: LevelSearch, tree: np.ndarray, probs: np.ndarray) -> float:
    """Return the best rate once the rest of the tree is drafted as one more level."""
    known = len(search.problem)
    search.add_level(tree, probs, np.zeros((len(tree) - known, 1, 1), np.int16))
    return search.best().objective


def test_without_siblings_that_sum_to_one_a_certified_stop_can_be_wrong() -> None:
    """Three children of probability 0.9: a phantom chain stands for one token of certain truth."""
    search, tree, probs, _ = two_levels([1, 0.9, 0.9, 0.9], [-1, 0, 0, 0], [0.0, 1.5], cut=1)
    assert not search.should_draft(np.ones(1), np.ones(1, bool)).draft
    before = search.best().objective
    assert deeper(search, tree, probs) > before


def test_if_later_levels_revise_probabilities_a_certified_stop_can_be_wrong() -> None:
    search, tree, probs, terms = two_levels([1, 0.2, 0.2], [-1, 0, 1], [0.0, 0.0, 0.5], cut=2)
    assert not search.should_draft(np.ones(1), np.array([False, True])).draft
    before = search.best().objective
    revised = LevelSearch(RoutingPricer())
    revised.start(terms)
    revised.add_level(tree[:1], probs[:1], np.zeros((1, 1, 1), np.int16))
    higher = np.array([1.0, 0.9, 0.9])
    revised.add_level(tree[:2], higher[:2], np.zeros((1, 1, 1), np.int16))
    assert deeper(revised, tree, higher) > before


def test_if_expanded_nodes_get_more_children_a_certified_stop_can_be_wrong() -> None:
    """The root is expanded and unmarked, and yet a second child of it comes a level later."""
    search, tree, probs, _ = two_levels([1, 0.1, 0.8], [-1, 0, 0], [0.0, 0.0, 0.5], cut=2)
    assert not search.should_draft(np.ones(1), np.array([False, True])).draft
    before = search.best().objective
    assert deeper(search, tree, probs) > before
    again, *_ = two_levels([1, 0.1, 0.8], [-1, 0, 0], [0.0, 0.0, 0.5], cut=2)
    unassigned = np.array([[0.9], [1.0]])
    assert again.should_draft(unassigned, np.array([True, True])).draft


def test_costs_that_fall_with_depth_are_refused() -> None:
    with pytest.raises(InvalidInputError, match=r"draft_s\[2\]"):
        CostTerms(np.array([0.0, 1.0, 0.5]), np.array([0.0, 1.0]), np.zeros((1, 1)))


def test_one_level_ahead_is_no_certificate_for_two() -> None:
    """The second level is free once the first is paid: only two levels together pay."""
    search, *_ = two_levels([1.0], [-1], [0.0, 1.5, 1.5], cut=1)
    assert not search.should_draft(np.ones(1), np.ones(1, bool)).draft
    decision = search.should_draft(np.ones(2), np.ones(1, bool))
    assert decision.draft
    assert decision.levels_ahead == 2


def test_general_costs_look_ahead_too() -> None:
    """Up to 2 nodes cost 1 s, the next two another: one phantom comes in the first step."""
    tau_s = np.array([0.0, 1.0, 1.0, 2.0, 2.0])
    terms = CostTerms(np.array([0.0, 0.1, 0.2]), tau_s, np.zeros((1, 1)))
    search = LevelSearch(RoutingPricer())
    search.start(terms)
    search.add_level(np.array([-1], np.int32), np.ones(1), np.zeros((1, 1, 1), np.int16))
    assert search.should_draft(np.array([0.5, 0.5]), np.ones(1, bool)).levels_ahead == 1
    assert not search.should_draft(np.array([0.05, 0.05]), np.ones(1, bool)).draft
