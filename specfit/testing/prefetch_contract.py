"""What every prefetcher keeps: legal wishes, the same for the same view, and no look ahead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from specfit.core.backend import Request
from specfit.core.experts import ModelGeometry
from specfit.core.history import RoutingHistory
from specfit.core.prefetch import Prefetcher, PrefetchView
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan, DraftTree
from specfit.testing.contract import Contract, check, require
from specfit.testing.examples import example_geometry, make_cycle
from specfit.testing.toy import ToyBackend, toy_backend

PLAN = DraftPlan(3, 3, 64)
LENGTHS = (0, 1, 7, 60)
"""Tokens whose routing is known."""


class PrefetcherContract(Contract):
    """F1 to F5. ``make`` returns the prefetcher.

    It is asked as the decode loop asks it: one with `before_drafting` is shown no cycle. One with a
    method ``connect(backend)`` is connected to the backend before, and caught if it makes use of
    that.
    """

    geometry: ClassVar[ModelGeometry] = example_geometry(num_layers=3)

    def make_for(self, backend: ToyBackend) -> Prefetcher:
        """Return the prefetcher as it is used with `backend`; most need nothing of it."""
        prefetcher: Prefetcher = self.make()
        connect = getattr(prefetcher, "connect", None)
        if connect is not None:
            connect(backend)
        return prefetcher

    def test_f1_an_array_of_all_experts(self) -> None:
        """float32[L, E], whatever is known."""
        shape = (self.geometry.num_layers, self.geometry.num_experts)
        for case in self._cases():
            wanted = self._ask(case)
            require(wanted.shape == shape, "F1", f"shape {wanted.shape}, not {shape}")
            require(wanted.dtype == np.float32, "F1", f"{wanted.dtype}, not float32")

    def test_f2_from_not_at_all_upwards(self) -> None:
        """Each expert is wanted 0, which is not at all, or more; a finite number."""
        for case in self._cases():
            wanted = self._ask(case)
            legal = np.isfinite(wanted).all() and (wanted >= 0).all()
            require(legal, "F2", f"values from {wanted.min()} to {wanted.max()}")

    def test_f3_deterministic(self) -> None:
        """Asked again, after other questions too, and asked of a fresh one, it wants the same."""
        for case in self._cases():
            prefetcher = self.make_for(case.backend)
            first = prefetcher.wanted(case.view(prefetcher)).copy()
            again = prefetcher.wanted(case.view(prefetcher)).copy()
            require(np.array_equal(again, first), "F3", "asked again, differs")
            for other in self._cases():
                prefetcher.wanted(other.view(prefetcher))
            later = prefetcher.wanted(case.view(prefetcher))
            require(np.array_equal(later, first), "F3", "asked after other questions, differs")
            require(np.array_equal(self._ask(case), first), "F3", "a fresh one differs")

    def test_f4_sees_only_what_is_known(self) -> None:
        """Two targets that differ only in routing to come are wanted the same experts of."""
        for few, many in zip(self._cases(), self._cases(context_share=5.0), strict=True):
            same = np.array_equal(self._ask(few), self._ask(many))
            require(same, "F4", "it knows the routing of nodes that the target has not seen")

    def test_f5_inputs_are_left_alone(self) -> None:
        """The history, the tree, the selection and the predictions are as before."""
        for case in self._cases():
            before = case.digest()
            self._ask(case)
            require(case.digest() == before, "F5", "the history or the cycle was changed")

    def _ask(self, case: _Case) -> NDArray[np.float32]:
        """Ask a fresh prefetcher."""
        prefetcher = self.make_for(case.backend)
        return prefetcher.wanted(case.view(prefetcher))

    def _cases(self, context_share: float = 0.5) -> list[_Case]:
        """Return drafts on histories of all lengths, verified whole, in part, or the root alone.

        The target's routing depends on `context_share`; what is known does not.
        """
        return [
            self._case(num_tokens, context_share, share)
            for num_tokens in LENGTHS
            for share in (0.0, 0.5, 1.0)
        ]

    def _case(self, num_tokens: int, context_share: float, share: float) -> _Case:
        g, generator = self.geometry, np.random.default_rng(num_tokens)
        drawn = generator.random((num_tokens, g.num_layers, g.num_experts)).argsort(axis=2)
        history = RoutingHistory(g)
        history.append(drawn[:, :, : g.experts_per_token].astype(np.int16))
        backend = toy_backend(geometry=g, context_share=context_share)
        tree = DraftTree.root(backend.start(Request((1, 2, 3), 8)).first_token)
        for _ in range(PLAN.depth):
            tree = tree.grow(backend.draft_level(PLAN, tree))
        shares = generator.dirichlet(np.full(g.num_experts, 0.3), (len(tree), g.num_layers))
        probs = np.minimum(g.experts_per_token * shares, 1.0).astype(np.float32)
        mask = tree.depths <= round(share * PLAN.depth)
        return _Case(backend, tree, history, probs, mask)


@dataclass(frozen=True)
class _Case:
    """What may be known when a prefetcher is asked, and the backend behind it."""

    backend: ToyBackend
    tree: DraftTree
    history: RoutingHistory
    probs: NDArray[np.float32]
    mask: NDArray[np.bool_]

    def view(self, prefetcher: Prefetcher) -> PrefetchView:
        g = self.backend.geometry
        if prefetcher.before_drafting:
            return PrefetchView(g, self.history)
        cycle = make_cycle(
            self.tree, geometry=g, residency=self.backend.residency(), expert_probs=self.probs
        )
        return PrefetchView(g, self.history, cycle, Selection(self.tree, self.mask))

    def digest(self) -> tuple[bytes, ...]:
        length = self.history.num_tokens
        known = (np.array(length), self.history.ages, self.history.recent(length))
        drafted = (self.tree.tokens, self.tree.log_probs, self.tree.parents)
        arrays = (*known, *drafted, self.probs, self.mask)
        return tuple(array.tobytes() for array in arrays)


def check_prefetcher(make: Callable[[], Prefetcher]) -> list[str]:
    """Check a prefetcher against its contract; see `PrefetcherContract`."""
    return check(PrefetcherContract, make)
