"""The affine problem at a given price, stated for solvers that know nothing of this project."""

from __future__ import annotations

import networkx as nx
import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array

from specfit.core.search import SearchProblem


def node_gains(problem: SearchProblem, price: float) -> np.ndarray:
    """Return what each node gains when experts are free, float64[N]; tau_s must be a line."""
    tau_s = problem.terms.tau_s
    node_s = float(tau_s[2] - tau_s[1]) if len(tau_s) > 2 else 0.0
    gains = problem.path_probs - price * node_s
    gains[0] -= price * (problem.draft_s + float(tau_s[1]) - node_s)
    return gains


def by_minimum_cut(problem: SearchProblem, price: float) -> float:
    """Return the best ``A - price * T`` by a networkx minimum cut."""
    gains, rows = node_gains(problem, price), problem.demand.rows()
    graph = nx.DiGraph()
    graph.add_nodes_from(["source", "sink"])
    # The root is always selected: no finite cut may leave it out.
    root_bonus = abs(gains[0]) + 1.0 + price * float(problem.demand.weight_s.sum())
    gains[0] += root_bonus
    for node, gain in enumerate(gains):
        ends = ("source", node) if gain > 0 else (node, "sink")
        graph.add_edge(*ends, capacity=abs(gain))
        if node:
            graph.add_edge(node, int(problem.parents[node]))
    for column, weight_s in enumerate(problem.demand.weight_s):
        graph.add_edge(("column", column), "sink", capacity=price * weight_s)
        for node in np.flatnonzero(rows[:, column]):
            capacity = price * weight_s * rows[node, column]
            graph.add_edge(int(node), ("column", column), capacity=capacity)
    cut, _ = nx.minimum_cut(graph, "source", "sink")
    return float(gains[gains > 0].sum() - cut - root_bonus)


def by_milp(problem: SearchProblem, price: float) -> float:
    """Return the best ``A - price * T`` by HiGHS.

    Variables: one 0/1 a node, one use in [0, 1] a column, one 0/1 switch a column. A column's use
    is at least its load, or at least 1 where the switch excuses the load beyond.
    """
    gains, rows = node_gains(problem, price), problem.demand.rows()
    n, c = rows.shape
    eye, none = np.eye(c), np.zeros((c, n))
    excess = np.diag(np.maximum(0.0, rows.sum(axis=0) - 1.0))
    closed = np.zeros((n - 1, n + 2 * c))
    closed[np.arange(n - 1), np.arange(1, n)] = 1.0
    closed[np.arange(n - 1), problem.parents[1:]] -= 1.0
    loads = np.hstack([rows.T, -eye, -excess])
    switches = np.hstack([none, -eye, eye])
    lower = np.zeros(n + 2 * c)
    lower[0] = 1.0
    found = milp(
        np.concatenate([-gains, price * problem.demand.weight_s, np.zeros(c)]),
        constraints=LinearConstraint(csr_array(np.vstack([loads, switches, closed])), ub=0.0),
        bounds=Bounds(lower, np.ones(n + 2 * c)),
        integrality=np.concatenate([np.ones(n), np.zeros(c), np.ones(c)]),
        options={"mip_rel_gap": 0.0},
    )
    assert found.status == 0, found.message
    return -float(found.fun)
