"""Random search problems: small enough for brute force, mean enough to find faults.

A case is drawn from a seed and a few knobs. Dyadic cases hold multiples of powers of two, so that
equal objectives at a dyadic price are equal to the bit and ties can be tested.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from specfit.core.copies import CopyTerms
from specfit.core.cost import CostTerms
from specfit.core.search import ProbPricer, RoutingPricer, SearchProblem

SCALES = (1e-9, 1e-3, 1.0, 1e3, 1e9)


@dataclass(frozen=True)
class Case:
    """A problem, what its demand was priced from, and a price to search it at."""

    problem: SearchProblem
    predicted: NDArray[Any]
    discount: float
    price: float | None

    @property
    def asked(self) -> Any:
        """The price as `exact` takes it."""
        return "cycle" if self.price is None else self.price

    def seconds(self, mask: NDArray[np.bool_]) -> float:
        """T of a selection, from the demand's rows and the terms, in plain numpy."""
        problem = self.problem
        used = np.zeros(problem.terms.weight_s.size)
        rows = problem.demand.rows()[mask]
        used[problem.demand.experts] = np.minimum(1.0, rows.sum(axis=0))
        activation = used.reshape(problem.terms.weight_s.shape)
        return problem.draft_s + problem.terms.pass_s(int(mask.sum()), activation)


def random_parents(rng: np.random.Generator, num_nodes: int) -> NDArray[np.int32]:
    """Draw a tree: bushy, long or in between."""
    reach = int(rng.integers(1, num_nodes + 1))
    drawn = [int(rng.integers(max(0, v - reach), v)) for v in range(1, num_nodes)]
    return np.array([-1, *drawn], np.int32)


def random_path_probs(
    rng: np.random.Generator, parents: NDArray[np.int32], dyadic: bool
) -> NDArray[np.float64]:
    """Draw path probabilities whose siblings sum to at most their parent; zeros and ties occur."""
    left = np.ones(len(parents))
    probs = np.ones(len(parents))
    for node in range(1, len(parents)):
        share = rng.choice([0.0, 0.25, 0.5, 1.0]) if dyadic else rng.random() * rng.choice([0.5, 1])
        probs[node] = left[parents[node]] * share
        left[parents[node]] -= probs[node]
        left[node] = probs[node]
    return probs


def random_predictions(
    rng: np.random.Generator, num_nodes: int, shape: tuple[int, int], hard: bool, dyadic: bool
) -> NDArray[Any]:
    """Draw routing, integer[N, L, K], or probabilities, float32[N, L, E]; equal nodes occur."""
    layers, experts = shape
    if hard:
        drawn: NDArray[Any] = rng.integers(0, experts, (num_nodes, layers, int(rng.integers(1, 4))))
        drawn = drawn.astype(np.int16)
    else:
        drawn = rng.random((num_nodes, layers, experts)).astype(np.float32)
        if dyadic:
            drawn = (np.round(drawn * 4) / 4).astype(np.float32)
        drawn[rng.random(drawn.shape) < 0.4] = rng.choice([0.0, 1.0])
    if num_nodes > 2 and rng.random() < 0.3:
        drawn[-1] = drawn[1]
    return drawn


def random_terms(
    rng: np.random.Generator, num_nodes: int, shape: tuple[int, int], dyadic: bool, kind: str
) -> CostTerms:
    """Draw costs: "affine", "table" (any tau) or "copies" (tables and overlap besides)."""
    unit = 1.0 / 64 if dyadic else float(rng.choice(SCALES) * rng.random() + 1e-12)

    def amounts(*size: int) -> NDArray[np.float64]:
        return rng.integers(0, 9, size) * unit if dyadic else rng.random(size) * unit

    weight_s = amounts(*shape) * (rng.random(shape) < rng.choice([0.0, 0.5, 0.9]))
    if kind == "affine":
        tau_s = amounts(1)[0] + unit + amounts(1)[0] * np.arange(num_nodes + 1)
    else:
        tau_s = unit + np.cumsum(amounts(num_nodes + 1) * (rng.random(num_nodes + 1) < 0.4))
    tau_s[0] = 0.0
    draft_s = np.concatenate([[0.0], np.cumsum(amounts(3))])
    copies = None
    if kind == "copies":
        steps = amounts(shape[0], int(rng.integers(2, 6)))
        layer_s = np.cumsum(steps * (rng.random(steps.shape) < 0.6), axis=1)
        units = (rng.random(shape) < 0.6).astype(np.float64)
        overlaps = ("none", "layer", "pass", "resident")
        copies = CopyTerms(units, layer_s, overlaps[int(rng.integers(4))])
    return CostTerms(draft_s, tau_s, weight_s, copies)


def random_case(
    seed: int, num_nodes: int, *, kind: str = "affine", dyadic: bool = False, limited: bool = False
) -> Case:
    """Draw a case of `num_nodes` nodes."""
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 4)), int(rng.integers(1, 7)))
    hard = bool(rng.random() < 0.5)
    discount = 0.0 if hard else float(rng.choice([0.0, 0.5]))
    parents = random_parents(rng, num_nodes)
    path_probs = random_path_probs(rng, parents, dyadic)
    terms = random_terms(rng, num_nodes, shape, dyadic, kind)
    predicted = random_predictions(rng, num_nodes, shape, hard, dyadic)
    pricer: Any = RoutingPricer() if hard else ProbPricer(discount)
    pricer.start(terms.weight_s, terms.is_priced)
    pricer.extend(parents, path_probs, predicted)
    limit = int(rng.integers(1, num_nodes + 1)) if limited else None
    problem = SearchProblem(
        parents, path_probs, pricer.demand(), terms, int(rng.integers(0, 4)), limit
    )
    price: float | None = None
    if dyadic:
        price = float(rng.integers(0, 32)) / 8
    elif rng.random() < 0.5:
        price = float(rng.random() * 2 / terms.tau_s[1])
    return Case(problem, predicted, discount, price)


def tying_case(seed: int, num_nodes: int) -> Case:
    """Draw a case of general costs whose few, coarse values make many selections equally good."""
    rng = np.random.default_rng(seed)
    experts = 4
    parents = random_parents(rng, num_nodes)
    path_probs = np.ones(num_nodes)
    for node in range(1, num_nodes):
        path_probs[node] = path_probs[parents[node]] * rng.choice([1.0, 0.5, 0.25])
    predicted = rng.integers(0, experts, (num_nodes, 1, int(rng.integers(1, 3)))).astype(np.int16)
    weight_s = rng.choice([0.0, 0.25, 0.5], (1, experts))
    tau_s = 0.5 + np.cumsum(rng.choice([0.0, 0.0, 0.25, 0.5], num_nodes + 1))
    tau_s[0] = 0.0
    copies = None
    if rng.random() < 0.5:
        layer_s = np.cumsum(rng.choice([0.0, 0.25, 0.5], (1, 4)), axis=1)
        overlaps = ("none", "layer", "pass")
        units = (rng.random((1, experts)) < 0.7).astype(np.float64)
        copies = CopyTerms(units, layer_s, overlaps[int(rng.integers(3))])
    terms = CostTerms(np.zeros(1), tau_s, weight_s, copies)
    pricer = RoutingPricer()
    pricer.start(terms.weight_s, terms.is_priced)
    pricer.extend(parents, path_probs, predicted)
    problem = SearchProblem(parents, path_probs, pricer.demand(), terms, levels=0)
    return Case(problem, predicted, 0.0, price=1.0)


def cases(max_nodes: int, **options: Any) -> st.SearchStrategy[Case]:
    """Draw cases of up to `max_nodes` nodes; `options` go to `random_case`."""
    build: Callable[[int, int], Case] = lambda seed, nodes: random_case(seed, nodes, **options)  # noqa: E731
    return st.builds(build, st.integers(0, 2**32 - 1), st.integers(1, max_nodes))
