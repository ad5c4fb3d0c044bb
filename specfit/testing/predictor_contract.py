"""What every coverage predictor keeps: probabilities that sum to K, and no look into the future."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from specfit.core.backend import Request
from specfit.core.experts import ModelGeometry
from specfit.core.history import RoutingHistory
from specfit.core.predictor import CoveragePredictor
from specfit.core.tree import DraftPlan, DraftTree
from specfit.testing.contract import Contract, check, require
from specfit.testing.examples import example_geometry
from specfit.testing.toy import ToyBackend, toy_backend

SUM_TOLERANCE = 1e-3
"""Relative deviation from K that the sum of a layer may have."""


class CoveragePredictorContract(Contract):
    """V1 to V5. ``make`` returns the predictor of a target of shape `geometry`.

    A predictor with a method ``connect(backend)`` is connected to the backend before it is asked,
    and caught if it makes use of that. One that looks at the drafter's hidden states gets trees
    with states; if it has a `width`, they are that wide.
    """

    geometry: ClassVar[ModelGeometry] = example_geometry(num_layers=3)

    def make_for(self, backend: ToyBackend) -> CoveragePredictor:
        """Return the predictor as it is used with `backend`; most need nothing of it."""
        predictor: CoveragePredictor = self.make()
        connect = getattr(predictor, "connect", None)
        if connect is not None:
            connect(backend)
        return predictor

    def test_v1_probabilities(self) -> None:
        """float32[N - first, L, E], each in [0, 1]; so is the novelty."""
        g = self.geometry
        for case in self._cases():
            novelty = self.make_for(case.backend).novelty
            require(0.0 <= novelty <= 1.0, "V1", f"a novelty of {novelty}")
            num_nodes = len(case.tree)
            for first in {0, num_nodes // 2, num_nodes - 1}:
                probs = self._ask(case, first=first)
                shape = (num_nodes - first, g.num_layers, g.num_experts)
                require(probs.shape == shape, "V1", f"shape {probs.shape}, not {shape}")
                require(probs.dtype == np.float32, "V1", f"{probs.dtype}, not float32")
                inside = (probs >= 0).all() and (probs <= 1).all()
                require(inside, "V1", f"values from {probs.min()} to {probs.max()}")

    def test_v2_a_layer_sums_to_k(self) -> None:
        """A token is routed to K experts of each layer, so the probabilities sum to K."""
        k = self.geometry.experts_per_token
        for case in self._cases():
            sums = self._ask(case).sum(axis=2)
            worst = float(np.abs(sums - k).max())
            require(worst <= SUM_TOLERANCE * k, "V2", f"a layer is {worst:g} off its sum of {k}")

    def test_v3_deterministic(self) -> None:
        """Asked again, and asked of a fresh predictor, the answer is the same."""
        for case in self._cases():
            predictor = self.make_for(case.backend)
            first = predictor.predict(case.tree, case.history, 0).copy()
            again = predictor.predict(case.tree, case.history, 0)
            require(_same(again, first), "V3", "asked again, differs")
            require(_same(self._ask(case), first), "V3", "a fresh one differs")

    def test_v4_sees_only_what_is_known(self) -> None:
        """No later node, no earlier question and no routing to come changes a prediction."""
        self._require_no_look_at_later_nodes()
        self._require_inputs_untouched()
        self._require_no_look_at_routing_to_come()

    def test_v5_some_layers_alone(self) -> None:
        """Asked for some layers, it says of them what it says of all."""
        layers = np.arange(self.geometry.num_layers) % 2 == 0
        for case in self._cases():
            predictor = self.make_for(case.backend)
            whole = predictor.predict(case.tree, case.history, 0)[:, layers]
            part = predictor.predict_layers(case.tree, case.history, 0, layers)
            require(part.dtype == np.float32, "V5", f"{part.dtype}, not float32")
            require(_same(part, whole), "V5", "asked for some layers, it differs")

    def _require_no_look_at_later_nodes(self) -> None:
        for case in self._cases():
            whole = self._ask(case).copy()
            num_nodes = len(case.tree)
            for n in range(1, num_nodes):
                part = self._ask(case, case.tree.first(n))
                same = _same(part, whole[:n])
                require(same, "V4", f"node {n} changes what is said of earlier ones")
            rest = self._ask(case, first=num_nodes // 2)
            same = _same(rest, whole[num_nodes // 2 :])
            require(same, "V4", "rows from `first` on differ from those of the whole tree")

    def _require_inputs_untouched(self) -> None:
        for case in self._cases():
            before = case.digest()
            self._ask(case)
            require(case.digest() == before, "V4", "the tree or the history was changed")

    def _require_no_look_at_routing_to_come(self) -> None:
        """Two targets that differ only in the routing of what is not committed yet look alike."""
        for num_tokens in (0, 20):
            answers = []
            history = self._made_up_history(num_tokens)
            for context_share in (0.0, 5.0):
                backend = self._backend(context_share)
                predictor = self.make_for(backend)
                tree = DraftTree.root(backend.start(Request((1, 2, 3), 8)).first_token)
                tree = tree.grow(backend.draft_level(DraftPlan(1, 3, 4), tree))
                answers.append(predictor.predict(tree, history, 0).copy())
            require(
                _same(*answers), "V4", "it knows the routing of nodes that the target has not seen"
            )

    def _made_up_history(self, num_tokens: int) -> RoutingHistory:
        g, generator = self.geometry, np.random.default_rng(num_tokens)
        drawn = generator.random((num_tokens, g.num_layers, g.num_experts)).argsort(axis=2)
        history = RoutingHistory(g)
        history.append(drawn[:, :, : g.experts_per_token].astype(np.int16))
        return history

    def _ask(
        self, case: _Case, tree: DraftTree | None = None, first: int = 0
    ) -> NDArray[np.float32]:
        """Ask a fresh predictor for the nodes from `first` on."""
        return self.make_for(case.backend).predict(tree or case.tree, case.history, first)

    def _backend(self, context_share: float = 0.5) -> ToyBackend:
        """Return a toy that drafts with states if the predictor looks at them."""
        backend = toy_backend(geometry=self.geometry, context_share=context_share)
        predictor = self.make()
        if predictor.needs_states:
            backend.keep_states(getattr(predictor, "width", None))
        return backend

    def _cases(self) -> list[_Case]:
        """Return drafted trees with histories: none, short and long."""
        plan = DraftPlan(3, 3, 64)
        cases = []
        for num_tokens in (1, 7, 60):
            backend = self._backend()
            prompt = tuple(np.random.default_rng(num_tokens).integers(0, 32, num_tokens).tolist())
            prefill = backend.start(Request(prompt, 8))
            tree = DraftTree.root(prefill.first_token)
            for _ in range(plan.depth):
                tree = tree.grow(backend.draft_level(plan, tree))
            history = RoutingHistory(self.geometry)
            if num_tokens > 1:
                history.append(prefill.routing)
            cases.append(_Case(backend, tree, history))
        return cases


@dataclass(frozen=True)
class _Case:
    """A drafted tree with the history it grew on, and the backend behind it."""

    backend: ToyBackend
    tree: DraftTree
    history: RoutingHistory

    def digest(self) -> tuple[bytes, ...]:
        length = self.history.num_tokens
        known = (np.array(length), self.history.ages, self.history.recent(length))
        arrays = (*known, self.tree.tokens, self.tree.log_probs, self.tree.states)
        return tuple(array.tobytes() for array in arrays if array is not None)


def check_predictor(
    make: Callable[[], CoveragePredictor], geometry: ModelGeometry | None = None
) -> list[str]:
    """Check a predictor against its contract; see `CoveragePredictorContract`.

    Parameters
    ----------
    make : callable
        Returns a fresh predictor.
    geometry : ModelGeometry, optional
        Shape of the target that it was made for; by default the contract's own.
    """
    shape = geometry or CoveragePredictorContract.geometry
    of_shape = type("CoveragePredictorContract", (CoveragePredictorContract,), {"geometry": shape})
    return check(of_shape, make)


def _same(one: NDArray[np.float32], other: NDArray[np.float32]) -> bool:
    return bool(np.array_equal(one, other))
