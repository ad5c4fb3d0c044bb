"""Trees of known shape and known answer, small and large."""

from __future__ import annotations

import numpy as np
import pytest

from specfit.core.cost import CostTerms
from specfit.core.errors import InvalidInputError
from specfit.core.search import (
    LevelSearch,
    ProbPricer,
    RoutingPricer,
    SearchProblem,
    certify,
    evaluate,
    exact,
    greedy,
    should_draft,
)
from specfit.testing.certificate import check_certificate
from tests.reference import closure

SIZES = (1, 2, 61, 64, 65, 128, 610, 1024)


def chain(n: int) -> np.ndarray:
    return np.arange(-1, n - 1).astype(np.int32)


def star(n: int) -> np.ndarray:
    return np.array([-1] + [0] * (n - 1), np.int32)


def comb(n: int) -> np.ndarray:
    """A spine of even nodes, each with a tooth."""
    return np.array([-1] + [v - 1 if v % 2 else max(0, v - 2) for v in range(1, n)], np.int32)


def complete(n: int) -> np.ndarray:
    """Three children a node."""
    return np.array([-1] + [(v - 1) // 3 for v in range(1, n)], np.int32)


def path_probs_of(parents: np.ndarray) -> np.ndarray:
    probs = np.ones(len(parents))
    children = np.bincount(parents[1:], minlength=len(parents)) if len(parents) > 1 else [0]
    for node in range(1, len(parents)):
        probs[node] = probs[parents[node]] * 0.96 / children[parents[node]] ** 0.5
    return probs


def search(parents: np.ndarray, routing: np.ndarray, copy_s: float) -> SearchProblem:
    weight_s = np.full((1, int(routing.max()) + 1), copy_s)
    pricer = RoutingPricer()
    pricer.start(weight_s)
    path_probs = path_probs_of(parents)
    pricer.extend(parents, path_probs, routing)
    tau_s = 1.0 + 0.01 * np.arange(len(parents) + 1)
    tau_s[0] = 0.0
    return SearchProblem(
        parents, path_probs, pricer.demand(), CostTerms(np.zeros(1), tau_s, weight_s), levels=0
    )


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("family", [chain, star, comb, complete])
@pytest.mark.parametrize("sharing", ["one expert", "disjoint", "pairs"])
def test_every_family_is_proved_optimal(family, size: int, sharing: str) -> None:  # type: ignore[no-untyped-def]
    parents = family(size)
    experts = {
        "one expert": np.zeros(size, int),
        "disjoint": np.arange(size),
        "pairs": np.arange(size) // 2,
    }[sharing]
    problem = search(parents, experts[:, None, None], 0.05)
    result = exact(problem)
    if size <= 128:
        check_certificate(problem, result, certify(problem, result))
    tokens, seconds = evaluate(problem, result.mask)
    assert result.objective == pytest.approx(tokens / seconds, rel=1e-12)


def test_with_free_experts_the_answer_is_the_likely_prefix() -> None:
    """Only nodes cost: a node is worth it exactly if it is likelier than what it takes."""
    problem = search(complete(121), np.zeros((121, 1, 1), int), 0.0)
    result = exact(problem)
    assert np.array_equal(result.mask, problem.path_probs > result.objective * 0.01)


@pytest.mark.parametrize("tau_s", [[0, 1, 2, 3, 4], [0, 1, 1, 2, 2]])
@pytest.mark.parametrize("scale", [1.0, 1e-15])
def test_path_probabilities_count_in_any_scale(tau_s: list[int], scale: float) -> None:
    path_probs = scale * np.array([1.0, 1.0, 1.0, 0.999])
    parents, pricer = np.array([-1, 0, 1, 0], np.int32), RoutingPricer()
    weight_s = np.array([[0.0, 0.0, 0.0, 0.0005]])
    pricer.start(weight_s)
    pricer.extend(parents, path_probs, np.array([[[0]], [[1]], [[2]], [[3]]], np.int16))
    terms = CostTerms(np.array([0.0, 1.0]), np.array(tau_s, np.float64), weight_s)
    result = exact(SearchProblem(parents, path_probs, pricer.demand(), terms, 1))
    assert result.mask.all()
    assert result.objective == pytest.approx(scale * 3.999 / (1.0005 + tau_s[4]), rel=1e-12)


def test_where_more_nodes_are_worth_it_than_the_table_has_its_end_is_the_limit() -> None:
    parents, path_probs = np.array([-1, 0, 1, 0], np.int32), np.array([1.0, 0.5, 0.5, 1.0])
    routing = [[[0, 0], [1, 0]], [[0, 1], [2, 2]], [[1, 0], [0, 0]], [[1, 1], [0, 1]]]
    weight_s, pricer = np.array([[0.001, 0.001, 0.0], [0.0, 0.0, 0.001]]), RoutingPricer()
    pricer.start(weight_s)
    pricer.extend(parents, path_probs, np.array(routing, np.int16))
    terms = CostTerms(np.zeros(1), np.array([0.0, 0.012, 0.012, 0.035]), weight_s)
    result = exact(SearchProblem(parents, path_probs, pricer.demand(), terms, 0), price=0.3)
    assert result.mask.tolist() == [True, True, False, True]
    assert result.cycle_s == pytest.approx(0.035 + 0.003, rel=1e-12)


def test_at_a_price_a_cycle_without_shared_experts_may_take_no_time() -> None:
    parents, path_probs, pricer = np.array([-1, 0, 0], np.int32), np.ones(3), RoutingPricer()
    pricer.start(np.zeros((1, 1)))
    pricer.extend(parents, path_probs, np.zeros((3, 1, 1), np.int16))
    terms = CostTerms(np.zeros(1), np.array([0.0, 0.0, 0.0, 1.0]), np.zeros((1, 1)))
    result = exact(SearchProblem(parents, path_probs, pricer.demand(), terms, 0), price=2.0)
    assert (result.num_nodes, result.objective, result.cycle_s) == (2, 2.0, 0.0)


@pytest.mark.parametrize("first_s", [1e-6, 1e-20])
def test_a_first_node_far_cheaper_than_the_next_keeps_its_time(first_s: float) -> None:
    parents, path_probs, pricer = np.array([-1, 0, 1], np.int32), np.ones(3), RoutingPricer()
    pricer.start(np.zeros((1, 1)))
    pricer.extend(parents, path_probs, np.zeros((3, 1, 1), np.int16))
    tau_s = np.array([0.0, first_s, 1.0 + first_s, 2.0 + first_s])
    terms = CostTerms(np.zeros(1), tau_s, np.zeros((1, 1)))
    result = exact(SearchProblem(parents, path_probs, pricer.demand(), terms, 0))
    assert result.num_nodes == 1
    assert result.objective == pytest.approx(1.0 / first_s, rel=1e-12)


def test_greedy_misses_what_only_pays_together() -> None:
    """Six siblings share one dear expert: no single one pays for it, all of them do."""
    parents = star(7)
    pricer = RoutingPricer()
    weight_s = np.array([[0.0, 0.9]])
    pricer.start(weight_s)
    path_probs = np.array([1.0, *[0.3] * 6])
    pricer.extend(parents, path_probs, np.array([0, *[1] * 6], np.int16).reshape(-1, 1, 1))
    tau_s = np.array([0.0, *[1.0] * 7])
    terms = CostTerms(np.zeros(1), tau_s, weight_s)
    problem = SearchProblem(parents, path_probs, pricer.demand(), terms, levels=0)
    assert greedy(problem).num_nodes == 1
    assert exact(problem).num_nodes == 7
    assert exact(problem).objective == pytest.approx(2.8 / 1.9)


def test_where_nothing_can_be_pruned_the_cut_decides() -> None:
    """Equal leaves over random shared experts, at the price where the answer tips to the root."""
    nodes = 21
    parents = star(nodes)
    pricer = RoutingPricer()
    weight_s = np.full((4, 8), 0.1)
    pricer.start(weight_s)
    path_probs = np.array([1.0, *[0.045] * (nodes - 1)])
    routing = np.random.default_rng(0).integers(0, 8, (nodes, 4, 2)).astype(np.int16)
    pricer.extend(parents, path_probs, routing)
    tau_s = np.array([0.0, *[1.0] * nodes])
    terms = CostTerms(np.zeros(1), tau_s, weight_s)
    problem = SearchProblem(parents, path_probs, pricer.demand(), terms, levels=0)
    low, high = 0.0, 10.0
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if exact(problem, price=middle).num_nodes > 1 else (low, middle)
    for price in (low * 0.999, low * 1.001):
        result = exact(problem, price=price)
        assert result.num_cuts > 0
        gain = closure.by_minimum_cut(problem, price)
        assert result.objective == pytest.approx(gain, abs=1e-12)


def test_a_gain_of_as_many_tokens_as_the_price_is_not_taken_for_a_rate() -> None:
    """2 tokens in 1 s at 1 token a second gain 1 token; 0.5 s more that add none gain less."""
    pricer = ProbPricer()
    pricer.start(np.zeros((1, 1)))
    parents, path_probs = chain(2), np.ones(2)
    pricer.extend(parents, path_probs, None)
    terms = CostTerms(np.array([0.0, 0.5]), np.array([0.0, 1.0, 1.0, 1.0]), np.zeros((1, 1)))
    problem = SearchProblem(parents, path_probs, pricer.demand(), terms, levels=0)
    result = exact(problem, price=1.0)
    assert (result.objective, result.price, result.gain) == (1.0, 1.0, 1.0)
    decision = should_draft(problem, result, np.zeros(1), np.array([False, True]))
    assert not decision.draft
    assert decision.surplus.tolist() == [-0.5]
    check_certificate(problem, result, certify(problem, result))
    assert exact(problem).gain == 0.0


def test_swapping_the_experts_of_two_siblings_swaps_the_choice() -> None:
    parents = star(3)
    weight_s = np.array([[0.0, 9.0]])
    for routing, chosen in (([0, 0, 1], [0, 1]), ([0, 1, 0], [0, 2])):
        pricer = RoutingPricer()
        pricer.start(weight_s)
        path_probs = np.array([1.0, 0.5, 0.5])
        pricer.extend(parents, path_probs, np.array(routing, np.int16).reshape(-1, 1, 1))
        terms = CostTerms(np.zeros(1), np.array([0.0, 1.0, 1.0, 1.0]), weight_s)
        problem = SearchProblem(parents, path_probs, pricer.demand(), terms, levels=0)
        assert np.flatnonzero(exact(problem).mask).tolist() == chosen


def test_an_expert_listed_twice_counts_once() -> None:
    pricer = RoutingPricer()
    pricer.start(np.array([[2.0, 3.0]]))
    pricer.extend(np.array([-1], np.int32), np.ones(1), np.array([[[1, 1]]], np.int16))
    assert pricer.demand().full_s.tolist() == [3.0]


def test_a_discount_forgives_sure_nodes_the_root_most() -> None:
    pricer = ProbPricer(discount=0.5)
    pricer.start(np.ones((1, 1)))
    parents, path_probs = np.array([-1, 0], np.int32), np.array([1.0, 0.8])
    pricer.extend(parents, path_probs, np.full((2, 1, 1), 0.5, np.float32))
    demand = pricer.demand()
    assert demand.full_s == pytest.approx([0.5 * 0.5, 0.25 * 0.6], rel=1e-6)
    everything = np.ones(2, bool)
    assert demand.activation(everything)[0, 0] == pytest.approx(0.75, rel=1e-6)
    assert demand.charged(everything)[0, 0] == pytest.approx(0.40, rel=1e-6)


def test_predictions_of_some_layers_price_these_alone() -> None:
    """As if the others did not exist; experts keep their places in the model."""
    parents, path_probs = np.array([-1, 0], np.int32), np.array([1.0, 0.8])
    rng = np.random.default_rng(0)
    weight_s, probs = rng.random((3, 4)), rng.random((2, 3, 4)).astype(np.float32)
    layers = np.array([False, True, False])
    for is_free in (0.0, 0.9):  # dense, and with few columns that cost anything
        weight_s = weight_s * (rng.random((3, 4)) >= is_free)
        weight_s[1, 2] = 1.0
        some, alone = ProbPricer(0.5), ProbPricer(0.5)
        some.start(weight_s * layers[:, None], layers=layers)
        some.extend(parents, path_probs, probs[:, layers])
        alone.start(weight_s[layers])
        alone.extend(parents, path_probs, probs[:, layers])
        everything = np.ones(2, bool)
        assert np.array_equal(some.demand().full_s, alone.demand().full_s)
        used = some.demand().activation(everything)
        assert used.shape == (3, 4)
        assert np.array_equal(used[layers], alone.demand().activation(everything))
        assert not used[~layers].any()
    with pytest.raises(InvalidInputError, match=r"must be \[1, 1, 4\]"):
        some.extend(np.array([-1, 0, 0], np.int32), np.array([1.0, 0.8, 0.1]), probs[:1])
    with pytest.raises(InvalidInputError, match="hard sets are those of all layers"):
        RoutingPricer().start(weight_s, layers=layers)


def test_without_costs_no_predictions_are_needed() -> None:
    search = LevelSearch(ProbPricer())
    tau_s = np.array([0.0, 1.0, 1.1, 1.2])
    search.start(CostTerms(np.zeros(2), tau_s, np.zeros((4, 8))))
    assert search.pricer.is_free  # type: ignore[union-attr]
    search.add_level(np.array([-1], np.int32), np.ones(1), None)
    search.add_level(np.array([-1, 0, 0], np.int32), np.array([1.0, 0.5, 0.01]), None)
    assert search.best().mask.tolist() == [True, True, False]
    assert search.problem.demand.activation(search.best().mask).sum() == 0.0


def test_one_object_serves_many_cycles() -> None:
    """A second cycle, with other weights and a larger tree, is as if it were the first."""
    rng = np.random.default_rng(0)
    pricer = ProbPricer()
    answers = []
    for used in (pricer, ProbPricer()):
        for size, free in ((5, 0.2), (80, 0.9), (3, 0.5)):
            rng = np.random.default_rng(size)
            weight_s = rng.random((2, 6)) * (rng.random((2, 6)) > free)
            used.start(weight_s)
            parents = complete(size)
            path_probs = path_probs_of(parents)
            probs = rng.random((size, 2, 6)).astype(np.float32)
            used.extend(parents, path_probs, probs)
            terms = CostTerms(np.zeros(1), np.append(0.0, 0.1 * np.arange(1, size + 1)), weight_s)
            problem = SearchProblem(parents, path_probs, used.demand(), terms, levels=0)
            answers.append(exact(problem).objective)
    assert answers[:3] == answers[3:]


def test_a_demand_that_is_forgiven_whole_is_still_known() -> None:
    """At discount 1 a sure node is charged next to nothing; what it needs is in the prediction."""
    pricer = ProbPricer(discount=1.0)
    pricer.start(np.ones((1, 2)))
    probs = np.eye(2, dtype=np.float32)[:, None]
    pricer.extend(np.array([-1, 0], np.int32), np.ones(2), probs)
    demand, everything = pricer.demand(), np.ones(2, bool)
    assert demand.charged(everything)[0] == pytest.approx([0.0, 0.0], abs=1e-5)
    assert demand.activation(everything)[0] == pytest.approx([1.0, 1.0], rel=1e-5)
    assert demand.expected_use(everything, np.ones((1, 2), bool)) == pytest.approx((2.0, 2.0, 0.0))
