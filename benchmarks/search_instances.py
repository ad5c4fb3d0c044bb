"""Instances for the search benchmark, seeded, of Qwen3-30B-A3B's shape."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specfit.core.copies import CopyTerms
from specfit.core.cost import CostTerms
from specfit.core.search import ProbPricer, RoutingPricer, SearchProblem

LAYERS, EXPERTS, PER_TOKEN = 48, 128, 8
COPY_S = 2e-4  # an expert of 9.4 MB at 47 GB/s
STEPS = (5, 9, 17, 33)  # sizes at which a table of kernel cliffs jumps
FREE_COPIES = 2


@dataclass(frozen=True)
class Instance:
    """A drafted tree with its routing, true or predicted, and what it costs to verify."""

    parents: NDArray[np.int32]
    path_probs: NDArray[np.float64]
    routing: NDArray[np.int16]  # [N, L, K]
    probs: NDArray[np.float32]  # [N, L, E]
    terms: CostTerms
    levels: int

    def first(self, num_nodes: int) -> Instance:
        """Return the instance of the tree's first nodes, which are a tree themselves."""
        return Instance(
            self.parents[:num_nodes], self.path_probs[:num_nodes], self.routing[:num_nodes],
            self.probs[:num_nodes], self.terms, self.levels,
        )  # fmt: skip

    def problem(self, *, hard: bool = True) -> SearchProblem:
        """Price the nodes and state the problem: everything from numpy arrays on."""
        pricer = RoutingPricer() if hard else ProbPricer()
        return self.problem_with(pricer)

    def problem_with(self, pricer: RoutingPricer | ProbPricer) -> SearchProblem:
        """See `problem`; uses the memory of a pricer that exists."""
        pricer.start(self.terms.weight_s, self.terms.is_priced if self.terms.copies else None)
        if isinstance(pricer, RoutingPricer):
            pricer.extend(self.parents, self.path_probs, self.routing)
        else:
            pricer.extend(self.parents, self.path_probs, self.probs)
        return SearchProblem(
            self.parents, self.path_probs, pricer.demand(), self.terms, self.levels
        )


def draw_tree(
    rng: np.random.Generator, num_nodes: int
) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
    """Draw a tree as EAGLE does: four children of each of the eight likeliest nodes of a level."""
    parents, path_probs, newest = [-1], [1.0], [0]
    while len(parents) < num_nodes:
        drawn = []
        for node in newest:
            share = np.sort(rng.dirichlet([0.3] * 6))[::-1] * 0.9
            for child in range(min(4, num_nodes - len(parents))):
                parents.append(node)
                path_probs.append(path_probs[node] * float(share[child]))
                drawn.append(len(parents) - 1)
        newest = sorted(drawn, key=lambda node: -path_probs[node])[:8]
    return np.array(parents, np.int32), np.array(path_probs)


def draw(seed: int, num_nodes: int, resident: float) -> Instance:
    """Draw an instance; a random part of the experts, `resident` of them, is on the device.

    Routing is skewed so that 4, 8 and 16 tokens need 23, 36 and 54 distinct experts of a layer;
    22, 36 and 56 are reported of Qwen3-30B-A3B.
    """
    rng = np.random.default_rng(seed)
    parents, path_probs = draw_tree(rng, num_nodes)
    context = 0.9 * rng.gumbel(size=(LAYERS, EXPERTS))
    scores = context + rng.gumbel(size=(num_nodes, LAYERS, EXPERTS))
    routing = np.argsort(-scores, axis=2)[:, :, :PER_TOKEN].astype(np.int16)
    guess = context + 0.7 * rng.gumbel(size=(num_nodes, LAYERS, EXPERTS))
    shares = np.exp(guess - guess.max(axis=2, keepdims=True))
    probs = np.minimum(0.98, PER_TOKEN * shares / shares.sum(axis=2, keepdims=True))
    rank = np.argsort(rng.random((LAYERS, EXPERTS)), axis=1)
    weight_s = np.where(rank < resident * EXPERTS, 0.0, COPY_S)
    tau_s = 5e-3 + 5e-5 * np.arange(num_nodes + 1)
    tau_s[0] = 0.0
    terms = CostTerms(4e-4 * np.arange(9), tau_s, weight_s)
    return Instance(parents, path_probs, routing, probs.astype(np.float32), terms, levels=4)


def with_general_costs(instance: Instance) -> Instance:
    """Return the instance with kernel cliffs, free copies, and copies hidden layer by layer."""
    terms = instance.terms
    missing = terms.weight_s > 0
    copy_s = float(terms.weight_s.max(initial=0.0)) or COPY_S
    nodes = np.arange(len(instance.parents) + 1)
    cliffs = np.searchsorted(STEPS, nodes, side="right")
    tau_s = float(terms.tau_s[1]) * (1.6 + 0.24 * cliffs) + 0.4 * float(terms.node_s) * nodes
    tau_s[0] = 0.0
    copies = np.arange(instance.routing[:, 0].size + 1)
    one_layer_s = copy_s * np.maximum(0, copies - FREE_COPIES)
    layer_s = np.tile(one_layer_s, (len(missing), 1))
    general = CostTerms(
        terms.draft_s,
        tau_s,
        np.zeros(terms.weight_s.shape),
        CopyTerms(missing.astype(np.float64), layer_s, "layer"),
    )
    return Instance(
        instance.parents, instance.path_probs, instance.routing, instance.probs, general,
        instance.levels,
    )  # fmt: skip
