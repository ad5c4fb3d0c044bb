"""Kernels of the search, each against something obvious."""

from __future__ import annotations

import networkx as nx
import numpy as np
import pytest

from specfit.core.search import _cut, _flow, _knapsack, _terms
from tests.reference.search_cases import random_parents


@pytest.mark.parametrize("seed", range(20))
def test_the_flow_is_maximal_and_the_cut_minimal(seed: int) -> None:
    rng = np.random.default_rng(seed)
    vertices, arcs = int(rng.integers(2, 12)), int(rng.integers(1, 40))
    network = _flow.new_network(vertices, arcs)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(vertices))
    drawn = []
    for _ in range(arcs):
        tail, head = (int(v) for v in rng.choice(vertices, 2, replace=False))
        room = float(rng.integers(0, 8))
        _flow.add_arc(network, tail, head, room)
        drawn.append((tail, head, room))
        known = graph.get_edge_data(tail, head, {"capacity": 0.0})["capacity"]
        graph.add_edge(tail, head, capacity=known + room)
    side = _flow.saturate(network, 0, vertices - 1) >= 0
    cut = sum(room for tail, head, room in drawn if side[tail] and not side[head])
    value, (smallest, _) = nx.minimum_cut(graph, 0, vertices - 1)
    assert cut == value
    assert set(np.flatnonzero(side)) <= set(smallest)
    flow = sum(float(network.room[2 * i + 1]) for i, (tail, *_) in enumerate(drawn) if tail == 0)
    back = sum(float(network.room[2 * i + 1]) for i, (_, head, _) in enumerate(drawn) if head == 0)
    assert flow - back == value


def test_equal_owners_and_only_they_are_merged() -> None:
    rng = np.random.default_rng(1)
    keys = rng.integers(0, 3, (200, 2)).astype(np.uint64) << np.uint64(40)
    numbers, count = _cut._same_rows(keys)
    by_key: dict[bytes, int] = {}
    for key, number in zip(keys, numbers.tolist(), strict=True):
        assert by_key.setdefault(key.tobytes(), number) == number
    assert count == len(by_key) == len(set(by_key.values()))


@pytest.mark.parametrize("seed", range(10))
def test_depth_first_order_keeps_branches_together(seed: int) -> None:
    parents = random_parents(np.random.default_rng(seed), 14)
    order, sizes = _knapsack.depth_first(parents)
    place = np.argsort(order)
    assert sorted(order.tolist()) == list(range(14))
    for node in range(14):
        branch = {node}
        for child in range(node + 1, 14):
            if parents[child] in branch:
                branch.add(child)
        assert sizes[node] == len(branch)
        assert {order[place[node] + i] for i in range(len(branch))} == branch


@pytest.mark.parametrize("seed", range(40))
def test_the_supporting_line_is_below_and_touches_the_envelope(seed: int) -> None:
    rng = np.random.default_rng(seed)
    table = np.cumsum(rng.random(8) * (rng.random(8) < 0.5))
    low, high = np.sort(rng.random(2) * 9)
    x = low + (high - low) * rng.random()
    start, slope = _terms.support_below(table, low, high, x)
    points = np.array([low, *[p for p in range(10) if low < p < high], high])
    values = np.array([_terms.table_at(table, float(p)) for p in points])
    assert (start + slope * points <= values + 1e-12).all()
    chords = [
        values[i] + (values[j] - values[i]) * (x - points[i]) / (points[j] - points[i])
        for i in range(len(points))
        for j in range(len(points))
        if points[i] <= x <= points[j] and points[i] < points[j]
    ]
    assert start + slope * x == pytest.approx(min(chords), abs=1e-12)


def test_a_table_goes_on_beyond_its_end() -> None:
    table = np.array([0.0, 1.0, 3.0])
    assert [_terms.table_at(table, x) for x in (0.0, 0.5, 1.5, 4.0)] == [0.0, 0.5, 2.0, 7.0]
