"""Cycles that can be worked out by hand, and outcomes of them.

Four layers of 16 experts, two a token; a copy takes 1 ms, an activated expert 0.1 ms, a pass
10 ms and 0.2 ms a node, the first drafted level 1 ms and each further one 0.5 ms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from specfit.core.backend import Verification
from specfit.core.experts import Residency
from specfit.core.policy import Cycle, Outcome, Policy
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan, DraftTree
from specfit.testing.examples import example_geometry, make_cycle

GEOMETRY = example_geometry()


def tree_of(
    parents: Sequence[int], cond_probs: Sequence[float], entropies: Sequence[float] | None = None
) -> DraftTree:
    """Return a tree; entropies are 0 unless given."""
    tree = DraftTree.from_arrays(np.array(parents, np.int32), np.array(cond_probs))
    return tree if entropies is None else replace(tree, entropies=np.array(entropies, np.float32))


def chain_of(*cond_probs: float) -> DraftTree:
    """Return a chain below the root."""
    return tree_of(range(-1, len(cond_probs)), (1.0, *cond_probs))


def residents(*experts: int) -> NDArray[np.bool_]:
    """Return a residency mask with these experts of every layer."""
    mask = np.zeros((GEOMETRY.num_layers, GEOMETRY.num_experts), bool)
    mask[:, list(experts)] = True
    return mask


def cycle_of(
    tree: DraftTree,
    experts: Sequence[tuple[int, int]] | None = None,
    *,
    resident: Sequence[int] = (),
    plan: DraftPlan | None = None,
) -> Cycle:
    """Return a cycle; node v needs ``experts[v]`` of every layer, by default v and v + 1."""
    nodes = range(len(tree))
    needed = experts or [(v % 16, (v + 1) % 16) for v in nodes]
    probs = np.zeros((len(tree), GEOMETRY.num_layers, GEOMETRY.num_experts), np.float32)
    for node in nodes:
        probs[node][:, list(needed[node])] = 1.0
    return make_cycle(
        tree,
        geometry=GEOMETRY,
        residency=Residency(residents(*resident)),
        expert_probs=probs,
        plan=plan,
    )


def after(cycle: Cycle, num_nodes: int) -> Cycle:
    """Return the cycle when only its first nodes were drafted."""
    tree = cycle.tree.first(num_nodes)
    return replace(cycle, tree=tree, levels=tree.num_levels)


def selected(policy: Policy, cycle: Cycle) -> list[int]:
    """Return the nodes that a policy selects."""
    return policy.select(cycle).nodes.tolist()


def outcome_of(cycle: Cycle, num_accepted: int, seconds: float = 0.02) -> Outcome:
    """Return the outcome of a chain that was verified whole, so many of its tokens accepted."""
    selection = Selection(cycle.tree, np.ones(len(cycle.tree), bool))
    counts = np.zeros(GEOMETRY.num_layers, np.int64)
    n = len(cycle.tree)
    verification = Verification(
        nodes=selection.nodes,
        target_tokens=np.zeros(n, np.int64),
        target_probs=np.ones(n, np.float32),
        margins=np.ones(n, np.float32),
        routing=np.zeros((n, GEOMETRY.num_layers, 2), np.int16),
        num_hits=counts,
        num_misses=counts,
        num_evictions=counts,
        stall_s=0.0,
        compute_s=seconds,
    )
    accepted = tuple(range(1, num_accepted + 1))
    return Outcome(cycle, selection, verification, accepted, tuple(range(num_accepted + 1)))
