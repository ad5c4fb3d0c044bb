"""For each rule of the backend contract a backend that breaks only that rule."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from specfit.core.backend import Prefill, Request, Verification
from specfit.core.errors import ContractError
from specfit.core.noise import Sampling
from specfit.core.selection import Selection
from specfit.core.tree import DraftLevel, DraftPlan, DraftTree
from specfit.testing.backend_contract import BackendContract, check_backend
from specfit.testing.toy import ToyBackend, target_draws, toy_backend


class Sound(ToyBackend):
    """The toy as it is."""


class LosesItsWayInWideTrees(Sound):
    """Answers for the root with another token when more than four nodes are verified."""

    def verify(self, tree: DraftTree, selection: Selection) -> Verification:
        answer = super().verify(tree, selection)
        if len(selection) > 4:
            answer.target_tokens[0] = (answer.target_tokens[0] + 1) % 32
        return answer


class OneNumberForTwoDraws(Sound):
    """Draws every token of a pass with the noise of the first: right alone, wrong after drafts."""

    def _emit(self, states: NDArray[np.uint64], positions: NDArray[Any]) -> Any:
        return super()._emit(states, np.full_like(positions, positions[0]))


class AlwaysGreedy(Sound):
    def _emit(self, states: NDArray[np.uint64], positions: NDArray[Any]) -> Any:
        logits = self.model.target_logits[self._rows(states)]
        return target_draws(logits, positions, Sampling())


class SeesItsSiblings(Sound):
    """The margin of a node depends on how many nodes are verified with it."""

    def verify(self, tree: DraftTree, selection: Selection) -> Verification:
        answer = super().verify(tree, selection)
        return replace(answer, margins=answer.margins + np.float32(0.01 * len(selection)))


class KeepsTheFirstNodes(Sound):
    """Does not compact: keeps as many nodes as were accepted, from the front of the tree."""

    def commit(
        self, tree: DraftTree, accepted: tuple[int, ...], committed: tuple[int, ...]
    ) -> None:
        scattered = accepted == (3, 7)
        super().commit(tree, (1, 4) if scattered else accepted, committed)


class LosesAMiss(Sound):
    def verify(self, tree: DraftTree, selection: Selection) -> Verification:
        answer = super().verify(tree, selection)
        return replace(answer, num_misses=np.maximum(answer.num_misses - 1, 0))


class RoutesTwice(Sound):
    def verify(self, tree: DraftTree, selection: Selection) -> Verification:
        answer = super().verify(tree, selection)
        return replace(answer, routing=answer.routing[:, :, :1].repeat(2, axis=2))


class CallsMissesHits(Sound):
    def verify(self, tree: DraftTree, selection: Selection) -> Verification:
        answer = super().verify(tree, selection)
        return replace(
            answer,
            num_hits=answer.num_hits + answer.num_misses,
            num_misses=np.zeros_like(answer.num_misses),
        )


class RoundsWithTheCache(Sound):
    """Sums in another order when experts come in waves."""

    def verify(self, tree: DraftTree, selection: Selection) -> Verification:
        answer = super().verify(tree, selection)
        if self.cache.capacity > 2:
            return answer
        return replace(answer, margins=answer.margins * np.float32(1 + 1e-6))


class ClosesOnce(Sound):
    is_closed = False

    def close(self) -> None:
        assert not self.is_closed, "closed already"
        self.is_closed = True


class KeepsTheCache(Sound):
    """Starts a request with the experts of the one before."""

    def start(self, request: Request) -> Prefill:
        reset, self.cache.reset = self.cache.reset, lambda: None  # type: ignore[method-assign]
        try:
            if not self._context:
                reset()
            return super().start(request)
        finally:
            self.cache.reset = reset  # type: ignore[method-assign]


class DrawsWider(Sound):
    def draft_level(self, plan: DraftPlan, tree: DraftTree) -> DraftLevel:
        return super().draft_level(DraftPlan(plan.depth, plan.top_k + 1, plan.max_nodes), tree)


class RepeatsAToken(Sound):
    def draft_level(self, plan: DraftPlan, tree: DraftTree) -> DraftLevel:
        level = super().draft_level(plan, tree)
        tokens = level.tokens.copy()
        tokens[1::3] = tokens[0::3][: len(tokens[1::3])]
        return replace(level, tokens=tokens)


class TooSure(Sound):
    def draft_level(self, plan: DraftPlan, tree: DraftTree) -> DraftLevel:
        level = super().draft_level(plan, tree)
        return replace(level, log_probs=level.log_probs * np.float32(0.1))


class DrawsByChance(Sound):
    """Its second-best children depend on how many drafters there were before."""

    count = 0

    def start(self, request: Request) -> Prefill:
        DrawsByChance.count += 1
        self.shift = DrawsByChance.count
        return super().start(request)

    def draft_level(self, plan: DraftPlan, tree: DraftTree) -> DraftLevel:
        level = super().draft_level(plan, tree)
        return replace(level, tokens=(level.tokens + self.shift) % 32)


class ForgetsAfterPlainSteps(Sound):
    """Loses the features of plain steps, so its drafts after them are others."""

    num_plain = 0

    def start(self, request: Request) -> Prefill:
        self.num_plain = 0
        return super().start(request)

    def commit(
        self, tree: DraftTree, accepted: tuple[int, ...], committed: tuple[int, ...]
    ) -> None:
        super().commit(tree, accepted, committed)
        self.num_plain += len(tree) == 1

    def draft_level(self, plan: DraftPlan, tree: DraftTree) -> DraftLevel:
        level = super().draft_level(plan, tree)
        return replace(level, tokens=(level.tokens + self.num_plain) % 32)


MUTANTS: list[tuple[str, type[ToyBackend]]] = [
    ("B1", LosesItsWayInWideTrees),
    ("B2", OneNumberForTwoDraws),
    ("B2", AlwaysGreedy),
    ("B3", SeesItsSiblings),
    ("B4", KeepsTheFirstNodes),
    ("B5", LosesAMiss),
    ("B5", RoutesTwice),
    ("B6", CallsMissesHits),
    ("B7", RoundsWithTheCache),
    ("B8", ClosesOnce),
    ("B10", KeepsTheCache),
    ("D1", DrawsWider),
    ("D3", RepeatsAToken),
    ("D3", TooSure),
    ("D4", DrawsByChance),
    ("D7", ForgetsAfterPlainSteps),
]


def maker(kind: type[ToyBackend]) -> Any:
    def make(cache: str = "lru:50%") -> ToyBackend:
        plain = toy_backend(cache)
        return kind(plain.model, plain.cache, plain.profile)

    return make


def test_a_sound_backend_passes() -> None:
    assert set(check_backend(maker(Sound))) == set(BackendContract.rules())


@pytest.mark.parametrize(("rule", "kind"), MUTANTS)
def test_the_broken_rule_is_named(rule: str, kind: type[ToyBackend]) -> None:
    with pytest.raises(ContractError) as error:
        check_backend(maker(kind))
    assert error.value.rule == rule, str(error.value)


def test_every_rule_has_a_mutant() -> None:
    assert {rule for rule, _ in MUTANTS} == set(BackendContract.rules())
