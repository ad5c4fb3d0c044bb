"""Hypothesis strategies for the values that a policy, a cost model or a search works on.

``dyadic=True`` draws numbers whose sums and products are exact in binary, so that equal objectives
are equal to the bit and the rules for ties can be tested.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from specfit.core.cost import CostTerms
from specfit.core.experts import ModelGeometry, Residency
from specfit.core.selection import Selection
from specfit.core.tree import DraftTree
from specfit.testing.examples import example_geometry

UNIT = 2.0**-6
"""Grid of the dyadic numbers."""


@st.composite
def geometries(draw: st.DrawFn, max_layers: int = 3, max_experts: int = 8) -> ModelGeometry:
    """Draw the shape of a small mixture-of-experts model."""
    num_experts = draw(st.integers(1, max_experts))
    return example_geometry(
        num_layers=draw(st.integers(1, max_layers)),
        num_experts=num_experts,
        experts_per_token=draw(st.integers(1, num_experts)),
    )


@st.composite
def parents(draw: st.DrawFn, min_nodes: int = 1, max_nodes: int = 12) -> NDArray[np.int32]:
    """Draw the parents of a tree: chains, stars and everything between, int32[N]."""
    num_nodes = draw(st.integers(min_nodes, max_nodes))
    drawn = [draw(st.integers(0, node - 1)) for node in range(1, num_nodes)]
    return np.array([-1, *drawn], np.int32)


@st.composite
def cond_probs(
    draw: st.DrawFn, parents: Sequence[int] | NDArray[np.int32], *, dyadic: bool = False
) -> NDArray[np.float64]:
    """Draw the conditional probabilities of a tree, float64[N]: siblings sum to at most 1."""
    share = st.sampled_from([0.0, 0.25, 0.5, 1.0]) if dyadic else st.floats(0.0, 1.0)
    unassigned = [1.0] * len(parents)
    probs = [1.0]
    for parent in list(parents)[1:]:
        probs.append(unassigned[parent] * draw(share))
        unassigned[parent] -= probs[-1]
    return np.array(probs)


@st.composite
def trees(
    draw: st.DrawFn, min_nodes: int = 1, max_nodes: int = 12, vocab_size: int = 32
) -> DraftTree:
    """Draw a draft tree whose siblings carry different tokens."""
    drawn = draw(parents(min_nodes, max_nodes))
    probs = draw(cond_probs(drawn))
    shifts = [draw(st.integers(0, vocab_size - 1)) for _ in drawn]
    ranks = DraftTree.from_arrays(drawn, probs).ranks
    tokens = [(shifts[p] + int(r)) % vocab_size for p, r in zip(drawn, ranks, strict=True)]
    return DraftTree.from_arrays(drawn, probs, np.array(tokens, np.int64))


@st.composite
def selections(draw: st.DrawFn, tree: DraftTree) -> Selection:
    """Draw a legal selection of a tree."""
    mask = np.ones(len(tree), bool)
    for node in range(1, len(tree)):
        mask[node] = mask[tree.parents[node]] and draw(st.booleans())
    return Selection(tree, mask)


@st.composite
def residencies(draw: st.DrawFn, geometry: ModelGeometry) -> Residency:
    """Draw what is resident: nothing, everything, or any part of each layer."""
    size = geometry.num_layers * geometry.num_experts
    flags = st.one_of(
        st.just([False] * size),
        st.just([True] * size),
        st.lists(st.booleans(), min_size=size, max_size=size),
    )
    return Residency(np.array(draw(flags)).reshape(geometry.num_layers, geometry.num_experts))


@st.composite
def routings(draw: st.DrawFn, num_nodes: int, geometry: ModelGeometry) -> NDArray[np.int16]:
    """Draw the experts of each node, int16[N, L, K]: distinct within a layer."""
    ids = st.permutations(range(geometry.num_experts))
    k = geometry.experts_per_token
    rows = [[draw(ids)[:k] for _ in range(geometry.num_layers)] for _ in range(num_nodes)]
    return np.array(rows, np.int16)


@st.composite
def expert_probs(
    draw: st.DrawFn, num_nodes: int, geometry: ModelGeometry, *, dyadic: bool = False
) -> NDArray[np.float32]:
    """Draw predicted routing, float32[N, L, E]: mixtures of two routings, so each layer sums to K.

    The weights of a mixture are 0, 1/2 or 1 if dyadic: certain nodes are among them.
    """
    mixed = np.zeros((num_nodes, geometry.num_layers, geometry.num_experts), np.float32)
    weight = st.sampled_from([0.0, 0.5, 1.0]) if dyadic else st.floats(0.0, 1.0, width=32)
    weights = np.array([draw(weight) for _ in range(num_nodes)], np.float32)[:, None, None]
    for share in (weights, 1 - weights):
        hard = np.zeros_like(mixed)
        np.put_along_axis(hard, draw(routings(num_nodes, geometry)).astype(np.intp), 1.0, 2)
        mixed += share * hard
    return mixed


@st.composite
def cost_terms(
    draw: st.DrawFn,
    geometry: ModelGeometry,
    *,
    max_nodes: int = 12,
    levels: int = 4,
    affine: bool = True,
    dyadic: bool = False,
) -> CostTerms:
    """Draw the parts of a cycle's time; the fixed part of a pass is above 0."""
    seconds = st.integers(0, 64).map(lambda n: n * UNIT) if dyadic else st.floats(0.0, 1.0)
    fixed_s = draw(st.integers(1, 64)) * UNIT
    node_s = draw(seconds)
    if affine:
        steps = [node_s] * max_nodes
    else:
        steps = [draw(seconds) for _ in range(max_nodes)]
    tau_s = np.concatenate([[0.0], fixed_s + np.cumsum(steps)])
    if affine:
        tau_s[1:] = fixed_s + node_s * np.arange(1, max_nodes + 1)
    draft_s = np.cumsum([0.0, *(draw(seconds) for _ in range(levels))])
    size = geometry.num_layers * geometry.num_experts
    weights = draw(st.lists(seconds, min_size=size, max_size=size))
    shape = (geometry.num_layers, geometry.num_experts)
    return CostTerms(draft_s, tau_s, np.array(weights).reshape(shape))
