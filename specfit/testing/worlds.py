"""Variants of the toy backend: drafts of every shape, other token ids, another node order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core.backend import Prefill, Request, Verification
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeLoop, DecodeResult, Observer
from specfit.core.experts import ModelGeometry
from specfit.core.history import RoutingHistory
from specfit.core.policy import Policy
from specfit.core.predictor import AcceptanceModel, CoveragePredictor
from specfit.core.selection import Selection
from specfit.core.tree import DraftLevel, DraftPlan, DraftTree
from specfit.testing.examples import DrafterAcceptance, example_geometry
from specfit.testing.toy import ToyBackend, toy_backend


class ToyOracle(CoveragePredictor):
    """Knows the routing of every node: probabilities 0 and 1."""

    def __init__(self, backend: ToyBackend) -> None:
        self.backend = backend

    def predict(self, tree: DraftTree, history: RoutingHistory, first: int) -> NDArray[np.float32]:
        """See `CoveragePredictor.predict`."""
        routing = self.backend.node_routing(tree)[first:].astype(np.intp)
        g: ModelGeometry = self.backend.geometry
        probs = np.zeros((len(routing), g.num_layers, g.num_experts), np.float32)
        np.put_along_axis(probs, routing, 1.0, axis=2)
        return probs


def run_toy(
    policy: Policy,
    backend: ToyBackend,
    request: Request,
    observers: Sequence[Observer] = (),
    policy_key: int = 0,
    acceptance: AcceptanceModel | None = None,
) -> DecodeResult:
    """Decode a request on a toy backend; the policy is told the true routing and the true times.

    If no acceptance model is given, the drafter's own probabilities are believed.
    """
    return DecodeLoop(
        backend,
        policy,
        ProfileCost(backend.profile),
        ToyOracle(backend),
        acceptance or DrafterAcceptance(),
        observers=observers,
        policy_key=policy_key,
    ).run(request)


class ShapedToy(ToyBackend):
    """A toy whose drafter draws trees of a given shape.

    Shapes: ``pool`` (the plan's), ``dry`` (never anything), ``chain``, ``star`` (one level only),
    ``ties`` (equal probabilities), ``impossible`` (probabilities of 0), ``right`` (a child of every
    expanded node is the target's token), ``wrong`` (none is).
    """

    shape: str = "pool"

    def draft_level(self, plan: DraftPlan, tree: DraftTree) -> DraftLevel:
        """See `Backend.draft_level`."""
        level = super().draft_level(plan, tree)
        if self.shape == "dry" or (self.shape == "star" and len(tree) > 1):
            return level.take(slice(0))
        if self.shape == "chain":
            return level.take(slice(1))
        if self.shape == "ties":
            return replace(level, log_probs=np.full_like(level.log_probs, np.log(1 / 64)))
        if self.shape == "impossible":
            return replace(level, log_probs=np.full_like(level.log_probs, -np.inf))
        if self.shape in ("right", "wrong"):
            return self._with_tokens(level, tree)
        return level

    def _with_tokens(self, level: DraftLevel, tree: DraftTree) -> DraftLevel:
        rows = self._rows(self._node_states(tree)[level.parents])
        targets = self.model.target_logits[rows].argmax(axis=1)
        shift = level.ranks + (1 if self.shape == "wrong" else 0)
        return replace(level, tokens=(targets + shift) % self.geometry.vocab_size)


class RenamedToy(ToyBackend):
    """A toy that gives and takes other token ids: ``names[token]`` for each."""

    @property
    def names(self) -> NDArray[np.int64]:
        """The name of each token, int64[V]."""
        return np.random.default_rng(5).permutation(self.geometry.vocab_size)

    def start(self, request: Request) -> Prefill:
        """See `Backend.start`."""
        inner = replace(request, prompt=self._inner(request.prompt))
        prefill = super().start(inner)
        return replace(prefill, first_token=int(self.names[prefill.first_token]))

    def draft_level(self, plan: DraftPlan, tree: DraftTree) -> DraftLevel:
        """See `Backend.draft_level`."""
        level = super().draft_level(plan, self._inner_tree(tree))
        return replace(level, tokens=self.names[level.tokens])

    def verify(self, tree: DraftTree, selection: Selection) -> Verification:
        """See `Backend.verify`."""
        inner = self._inner_tree(tree)
        verification = super().verify(inner, Selection(inner, selection.mask))
        return replace(verification, target_tokens=self.names[verification.target_tokens])

    def commit(
        self, tree: DraftTree, accepted: tuple[int, ...], committed: tuple[int, ...]
    ) -> None:
        """See `Backend.commit`."""
        super().commit(self._inner_tree(tree), accepted, self._inner(committed))

    def node_routing(self, tree: DraftTree) -> NDArray[np.int16]:
        """See `ToyBackend.node_routing`."""
        return super().node_routing(self._inner_tree(tree))

    def node_targets(self, tree: DraftTree) -> NDArray[np.int64]:
        """See `ToyBackend.node_targets`."""
        return self.names[super().node_targets(self._inner_tree(tree))]

    def _inner(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(np.argsort(self.names)[list(tokens)].tolist())

    def _inner_tree(self, tree: DraftTree) -> DraftTree:
        return replace(tree, tokens=np.argsort(self.names)[tree.tokens])


class RelabelledToy(ToyBackend):
    """A toy that hands over the children of each node in the reverse order; ranks stay theirs."""

    def draft_level(self, plan: DraftPlan, tree: DraftTree) -> DraftLevel:
        """See `Backend.draft_level`."""
        level = super().draft_level(plan, tree)
        return level.take(np.lexsort((-level.ranks, level.parents)))


@dataclass(frozen=True)
class World:
    """A request on a toy backend, ready to be decoded by any policy."""

    name: str
    make: Callable[[], ToyBackend]
    request: Request

    def run(self, policy: Policy, observers: Sequence[Observer] = ()) -> DecodeResult:
        """Decode the request on a fresh backend."""
        return run_toy(policy, self.make(), self.request, observers)


def world(
    shape: str = "pool",
    *,
    cache: str = "lru:50%",
    num_tokens: int = 16,
    kind: type[ToyBackend] = ShapedToy,
    **request: Any,
) -> World:
    """Return the world of a shape, a cache and a number of tokens; keywords go to `Request`."""
    request.setdefault("prompt", (3, 1, 4, 1, 5, 9, 2, 6))

    def make() -> ToyBackend:
        plain = toy_backend(cache, geometry=example_geometry(num_layers=3))
        backend = kind(plain.model, plain.cache, plain.profile)
        if isinstance(backend, ShapedToy):
            backend.shape = shape
        return backend

    name = f"{shape} drafts, cache {cache}"
    return World(name, make, Request(max_new_tokens=num_tokens, **request))
