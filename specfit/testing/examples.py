"""Small ready-made inputs: a geometry, a hardware profile, and cycles of named shapes."""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from specfit.core.cost import CostModel, ProfileCost
from specfit.core.errors import InvalidInputError, did_you_mean
from specfit.core.experts import ExpertProbs, ModelGeometry, Residency
from specfit.core.history import RoutingHistory
from specfit.core.policy import Cycle
from specfit.core.predictor import AcceptanceModel, CoveragePredictor
from specfit.core.profile import HardwareProfile
from specfit.core.tree import DraftPlan, DraftTree


def example_geometry(
    *,
    num_layers: int = 4,
    num_experts: int = 16,
    experts_per_token: int = 2,
    vocab_size: int = 32,
) -> ModelGeometry:
    """Return the shape of a small mixture-of-experts model: 4 layers, 16 experts, top-2."""
    return ModelGeometry(num_layers, num_experts, experts_per_token, 1_000_000, vocab_size)


def example_profile() -> HardwareProfile:
    """Return round numbers in which copies dominate: 1 ms a copy, 10 ms a pass, 0.2 ms a node."""
    return HardwareProfile(
        name="example",
        provenance="round numbers for tests and examples",
        kind="cited",
        first_level_s=1e-3,
        level_s=5e-4,
        verify_fixed_s=1e-2,
        verify_node_s=2e-4,
        resident_expert_s=1e-4,
        copy_latency_s=0.0,
        h2d_bandwidth_bytes_per_s=1e9,
        expert_bytes=1_000_000,
    )


class DrafterAcceptance(AcceptanceModel):
    """Takes the drafter's probabilities for the probabilities of acceptance."""

    def calibrate(self, tree: DraftTree) -> NDArray[np.float64]:
        """See `AcceptanceModel.calibrate`."""
        return tree.cond_probs

    def continuation(self, depth: int, top_k: int) -> float:
        """Return 1 - 2**-top_k: each of the children in turn takes half of what is left."""
        return 1.0 - 0.5**top_k


class UniformPredictor(CoveragePredictor):
    """Knows nothing: every expert of a layer is equally likely."""

    def __init__(self, geometry: ModelGeometry) -> None:
        self.geometry = geometry

    def predict(self, tree: DraftTree, history: RoutingHistory, first: int) -> NDArray[np.float32]:
        """See `CoveragePredictor.predict`."""
        g = self.geometry
        share = g.experts_per_token / g.num_experts
        return np.full((len(tree) - first, g.num_layers, g.num_experts), share, np.float32)


def make_cycle(
    tree: DraftTree,
    *,
    geometry: ModelGeometry | None = None,
    residency: Residency | None = None,
    expert_probs: NDArray[np.float32] | None = None,
    cost: CostModel | None = None,
    plan: DraftPlan | None = None,
    max_depth: int = 64,
    context_len: int = 100,
    cycle_index: int = 3,
    acceptance: AcceptanceModel | None = None,
    policy_key: int = 0,
) -> Cycle:
    """Return the cycle in which a policy sees this tree; what is not given is plain and uniform.

    Parameters
    ----------
    expert_probs : float32[N, L, E], optional
        Predicted routing of each node; uniform if not given.
    """
    geometry = geometry or example_geometry()
    residency = residency or Residency.nothing(geometry)
    cost = cost or ProfileCost(example_profile())
    uniform = UniformPredictor(geometry)

    def predict(tree: DraftTree, layers: NDArray[np.bool_] | None) -> ExpertProbs:
        name, probs = "example", expert_probs
        if probs is None:
            name, probs = "uniform", uniform.predict(tree, RoutingHistory(geometry), 0)
        probs = probs[: len(tree)]
        return ExpertProbs(probs if layers is None else probs[:, layers], name)

    return Cycle(
        tree=tree,
        levels=tree.num_levels,
        plan=plan or DraftPlan(max(tree.num_levels, 1), 4, max(len(tree), 1)),
        max_depth=max_depth,
        geometry=geometry,
        residency=residency,
        context_len=context_len,
        cycle_index=cycle_index,
        acceptance=acceptance or DrafterAcceptance(),
        rng=np.random.default_rng(policy_key),
        _terms=cache(lambda: cost.terms(residency, context_len)),
        _predict=predict,
    )


def example_tree(shape: str) -> DraftTree:
    """Return a small draft tree: ``root``, ``chain``, ``star``, ``two-branches`` or ``ties``."""
    if shape not in _SHAPES:
        raise InvalidInputError(
            f"no example '{shape}'.{did_you_mean(shape, _SHAPES)} Known: {', '.join(_SHAPES)}."
        )
    parents, cond_probs = _SHAPES[shape]
    return DraftTree.from_arrays(np.array(parents, np.int32), np.array(cond_probs))


def example_cycle(shape: str) -> Cycle:
    """Return the cycle of an example tree, with no expert resident but the even ones.

    Node ``v`` is routed to experts ``v`` and ``v + 1`` (modulo E) of every layer, for certain.
    """
    tree, geometry = example_tree(shape), example_geometry()
    mask = np.zeros((geometry.num_layers, geometry.num_experts), bool)
    mask[:, ::2] = True
    probs = np.zeros((len(tree), geometry.num_layers, geometry.num_experts), np.float32)
    nodes = np.arange(len(tree))
    for k in range(geometry.experts_per_token):
        probs[nodes, :, (nodes + k) % geometry.num_experts] = 1.0
    return make_cycle(tree, geometry=geometry, residency=Residency(mask), expert_probs=probs)


_SHAPES: dict[str, tuple[tuple[int, ...], tuple[float, ...]]] = {
    "root": ((-1,), (1.0,)),
    "chain": ((-1, 0, 1, 2, 3), (1.0, 0.9, 0.8, 0.7, 0.6)),
    "star": ((-1, 0, 0, 0, 0), (1.0, 0.5, 0.25, 0.125, 0.0625)),
    "two-branches": ((-1, 0, 0, 1, 2, 3), (1.0, 0.5, 0.375, 0.75, 0.5, 0.5)),
    "ties": ((-1, 0, 0, 1, 2), (1.0, 0.5, 0.5, 0.5, 0.5)),
}
