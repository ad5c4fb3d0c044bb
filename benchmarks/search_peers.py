"""Other solvers on the same closure at a known price, fed by arrays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

import numpy as np
from numpy.typing import NDArray

from benchmarks.search_instances import Instance


@dataclass(frozen=True)
class Closure:
    """A flow network as arrays: vertices 0 to n - 1, each with what it gains or loses, and arcs."""

    gains: NDArray[np.float64]
    tails: NDArray[np.int64]
    heads: NDArray[np.int64]

    @property
    def most(self) -> float:
        """Sum of all gains, the gain of everything if nothing cost anything."""
        return float(self.gains[self.gains > 0].sum())


def closure_of(instance: Instance, price: float) -> Closure:
    """State an instance of 0/1 coverage at a price, from its arrays and by array operations alone.

    Vertices are the nodes below the root and the experts; a node needs its parent and every expert
    that it is routed to. Experts that cost nothing or that the root needs are left out.
    """
    routing, terms = instance.routing, instance.terms
    layers, experts = terms.weight_s.shape
    flat = routing.astype(np.int64) + (np.arange(layers) * experts)[:, None]
    costs = terms.weight_s.reshape(-1).copy()
    costs[flat[0].reshape(-1)] = 0.0
    needed = flat[1:].reshape(len(routing) - 1, -1)
    nodes, places = np.nonzero(costs[needed] > 0.0)
    ids = needed[nodes, places]
    is_used = np.zeros(len(costs), bool)
    is_used[ids] = True
    column = np.cumsum(is_used) - 1
    n = len(routing) - 1
    inner = np.flatnonzero(instance.parents[1:] > 0)
    return Closure(
        np.concatenate([instance.path_probs[1:] - price * terms.node_s, -price * costs[is_used]]),
        np.concatenate([inner, nodes]),
        np.concatenate([instance.parents[1:][inner] - 1, n + column[ids]]),
    )


def pymaxflow(closure: Closure) -> float:
    """Return the best gain by PyMaxflow."""
    import maxflow

    n = len(closure.gains)
    graph = maxflow.Graph[float](n, len(closure.tails))
    graph.add_nodes(n)
    big = np.full(len(closure.tails), 1e9)
    graph.add_edges(closure.tails, closure.heads, big, np.zeros(len(big)))
    vertices = np.arange(n)
    graph.add_grid_tedges(vertices, np.maximum(closure.gains, 0), np.maximum(-closure.gains, 0))
    return closure.most - float(graph.maxflow())


def igraph(closure: Closure) -> float:
    """Return the best gain by igraph."""
    import igraph

    n = len(closure.gains)
    paying, costing = np.flatnonzero(closure.gains > 0), np.flatnonzero(closure.gains < 0)
    tails = np.concatenate([closure.tails, np.full(len(paying), n), costing])
    heads = np.concatenate([closure.heads, paying, np.full(len(costing), n + 1)])
    room = np.concatenate(
        [np.full(len(closure.tails), 1e9), closure.gains[paying], -closure.gains[costing]]
    )
    graph = igraph.Graph(n + 2, np.column_stack([tails, heads]), directed=True)
    return closure.most - float(graph.maxflow_value(n, n + 1, capacity=room.tolist()))


def ortools(closure: Closure) -> float:
    """Return the best gain by OR-Tools, whose capacities are whole numbers: rounded to 1e-9."""
    from ortools.graph.python import max_flow

    n, unit = len(closure.gains), 1e9
    paying, costing = np.flatnonzero(closure.gains > 0), np.flatnonzero(closure.gains < 0)
    room = np.concatenate(
        [np.full(len(closure.tails), 1e9), closure.gains[paying], -closure.gains[costing]]
    )
    solver = max_flow.SimpleMaxFlow()
    solver.add_arcs_with_capacity(
        np.concatenate([closure.tails, np.full(len(paying), n), costing]),
        np.concatenate([closure.heads, paying, np.full(len(costing), n + 1)]),
        np.round(room * unit).astype(np.int64),
    )
    solver.solve(n, n + 1)
    return closure.most - solver.optimal_flow() / unit


def highs(closure: Closure) -> float:
    """Return the best gain by one HiGHS MILP."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    n, arcs = len(closure.gains), len(closure.tails)
    lines = np.arange(arcs)
    ones = np.ones(arcs)
    matrix = coo_array(
        (
            np.concatenate([ones, -ones]),
            (np.concatenate([lines, lines]), np.concatenate([closure.tails, closure.heads])),
        ),
        shape=(arcs, n),
    )
    found = milp(
        -closure.gains,
        constraints=LinearConstraint(matrix.tocsr(), ub=0.0),
        bounds=Bounds(0.0, 1.0),
        integrality=np.ones(n),
    )
    return -float(found.fun)


def networkx(closure: Closure) -> float:
    """Return the best gain by networkx."""
    import networkx as nx

    graph = nx.DiGraph()
    graph.add_nodes_from(["source", "sink"])
    graph.add_edges_from(zip(closure.tails.tolist(), closure.heads.tolist(), strict=True))
    for vertex, gain in enumerate(closure.gains.tolist()):
        ends = ("source", vertex) if gain > 0 else (vertex, "sink")
        graph.add_edge(*ends, capacity=abs(gain))
    return closure.most - float(nx.maximum_flow_value(graph, "source", "sink"))


def missing() -> list[str]:
    """Return the packages that this benchmark needs and that are not installed."""
    packages = {"maxflow": "PyMaxflow", "igraph": "igraph", "ortools": "ortools"}
    return [name for module, name in packages.items() if find_spec(module) is None]


FAST: dict[str, Callable[[Closure], float]] = {"PyMaxflow": pymaxflow, "igraph": igraph}
SLOW: dict[str, Callable[[Closure], float]] = {
    "OR-Tools": ortools,
    "HiGHS": highs,
    "networkx": networkx,
}
