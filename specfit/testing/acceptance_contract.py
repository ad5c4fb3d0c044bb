"""What every acceptance model keeps: probabilities of one event, and no look at later levels."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from specfit.core.backend import Request
from specfit.core.predictor import AcceptanceModel
from specfit.core.tree import DraftTree
from specfit.testing.contract import Contract, check, require
from specfit.testing.random_policy import RandomPolicy
from specfit.testing.toy import toy_backend
from specfit.testing.worlds import run_toy

SUM_TOLERANCE = 1e-6
"""How far rounding may carry the sum of siblings above 1: drafters speak float32."""


class AcceptanceContract(Contract):
    """A1 to A6. ``make`` returns the model."""

    def test_a1_probabilities(self) -> None:
        """float64[N] in [0, 1], and 1 at the root."""
        for tree in _trees():
            probs = self.make().calibrate(tree)
            right = probs.shape == (len(tree),) and probs.dtype == np.float64
            require(right, "A1", f"{probs.dtype}{list(probs.shape)}, not float64[{len(tree)}]")
            inside = (probs >= 0).all() and (probs <= 1).all()
            require(inside, "A1", f"values from {probs.min()} to {probs.max()}")
            require(probs[0] == 1, "A1", f"{probs[0]} at the root, which is certain")

    def test_a2_siblings_exclude_each_other(self) -> None:
        """At most one of them is the target's token, so they sum to at most 1."""
        for tree in _trees():
            probs = self.make().calibrate(tree)
            sums = np.bincount(tree.parents[1:], weights=probs[1:], minlength=len(tree))
            node, most = int(sums.argmax()), float(sums.max())
            require(most <= 1 + SUM_TOLERANCE, "A2", f"the children of node {node} sum to {most}")

    def test_a3_later_levels_change_nothing(self) -> None:
        """What is said of a level stands when further levels are drawn."""
        for tree in _trees():
            whole = self.make().calibrate(tree)
            for depth in range(tree.num_levels):
                upper = tree.first(int((tree.depths <= depth).sum()))
                same = np.array_equal(self.make().calibrate(upper), whole[: len(upper)])
                require(same, "A3", f"level {depth + 1} changes what is said of those above it")

    def test_a4_continuation(self) -> None:
        """A probability that does not fall as more children are drawn."""
        model = self.make()
        for depth in (1, 2, 5, 40):
            chances = [model.continuation(depth, top_k) for top_k in (1, 2, 4, 10, 64)]
            require(all(0 <= c <= 1 for c in chances), "A4", f"at depth {depth}: {chances}")
            require(chances == sorted(chances), "A4", f"at depth {depth} it falls: {chances}")

    def test_a5_deterministic(self) -> None:
        """Asked again, and asked of a fresh model, the answer is the same; the tree is kept."""
        model = self.make()
        for tree in _trees():
            before = tree.log_probs.tobytes()
            first = model.calibrate(tree).copy()
            require(np.array_equal(model.calibrate(tree), first), "A5", "asked again, differs")
            require(np.array_equal(self.make().calibrate(tree), first), "A5", "a fresh one differs")
            require(tree.log_probs.tobytes() == before, "A5", "the tree was changed")

    def test_a6_what_a_text_taught_is_legal_and_forgotten(self) -> None:
        """After a request the rules still hold, and equal texts teach the same; `reset` forgets."""
        taught, twin, fresh = self._taught(), self._taught(), self.make()
        for tree in _trees():
            probs = taught.calibrate(tree).copy()
            sums = np.bincount(tree.parents[1:], weights=probs[1:], minlength=len(tree))
            inside = (probs >= 0).all() and (probs <= 1).all() and probs[0] == 1
            legal = inside and sums.max() <= 1 + SUM_TOLERANCE
            require(legal, "A6", f"{probs.min()} to {probs.max()}, siblings up to {sums.max()}")
            require(np.array_equal(twin.calibrate(tree), probs), "A6", "a twin learnt otherwise")
        taught.reset()
        for tree in _trees():
            forgotten = np.array_equal(taught.calibrate(tree), fresh.calibrate(tree))
            require(forgotten, "A6", "reset does not forget")

    def _taught(self) -> AcceptanceModel:
        """Return a model that has seen drafts accepted and rejected."""
        model: AcceptanceModel = self.make()
        policy = RandomPolicy(max_top_k=2)
        run_toy(policy, toy_backend(), Request((3, 1, 4), 40), acceptance=model)
        return model


def check_acceptance(make: Callable[[], AcceptanceModel]) -> list[str]:
    """Check an acceptance model against its contract; see `AcceptanceContract`."""
    return check(AcceptanceContract, make)


def _trees() -> list[DraftTree]:
    """Return trees of every kind: the root, chains, stars, pools, sure and impossible nodes."""
    generator = np.random.default_rng(2)
    trees = [DraftTree.root(3), _chain(np.full(300, 0.9)), _chain(np.ones(5)), _chain(np.zeros(3))]
    for width in (2, 10, 64):
        for sharpness in (0.3, 3.0, 30.0):
            trees.append(_pool(generator, width, sharpness))
    return trees


def _chain(probs: np.ndarray) -> DraftTree:
    parents = np.arange(-1, len(probs), dtype=np.int32)
    return DraftTree.from_arrays(parents, np.concatenate([[1.0], probs]))


def _pool(generator: np.random.Generator, width: int, sharpness: float) -> DraftTree:
    """Return three levels; the first two children of each node go on, and siblings sum to 1."""
    parents, probs, entropies = [-1], [1.0], [0.0]
    expanded = [0]
    for _ in range(3):
        newest: list[int] = []
        for parent in expanded:
            weights = np.sort(np.exp(sharpness * generator.standard_normal(width)))[::-1]
            newest += [len(parents), len(parents) + 1]
            parents += [parent] * width
            probs += (weights / weights.sum()).tolist()
            entropies += [float(generator.random() * np.log(width))] * width
        expanded = newest
    tree = DraftTree.from_arrays(np.array(parents, np.int32), np.array(probs))
    return replace(
        tree,
        log_probs=np.minimum(tree.log_probs, 0.0),
        entropies=np.array(entropies, np.float32),
    )
