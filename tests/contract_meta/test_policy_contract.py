"""For each rule of the policy contract a policy that breaks only that rule, and is told so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import pytest

from specfit.core.errors import ContractError
from specfit.core.policy import Cycle, Outcome, Policy
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan
from specfit.testing.policy_contract import PolicyContract, check_policy


@dataclass
class Sound(Policy):
    """Verifies the most probable nodes of a small tree; keeps every rule."""

    max_nodes: int = 5

    def plan(self, cycle: Cycle) -> DraftPlan:
        return DraftPlan(3, 2, self.max_nodes)

    def select(self, cycle: Cycle) -> Selection:
        order = np.lexsort((cycle.tree.depths, -cycle.tree.path_probs))
        return Selection.from_nodes(cycle.tree, order[: self.max_nodes])


class ReturnsAMask(Sound):
    def select(self, cycle: Cycle) -> Any:
        return super().select(cycle).mask


class PlansNothing(Sound):
    def plan(self, cycle: Cycle) -> Any:
        return None


class NeverSaysNo(Sound):
    def after_level(self, cycle: Cycle) -> Any:
        return None


class SelectsOfACopy(Sound):
    def select(self, cycle: Cycle) -> Selection:
        return Selection(replace(cycle.tree), super().select(cycle).mask)


class SelectsTooMany(Sound):
    def plan(self, cycle: Cycle) -> DraftPlan:
        return DraftPlan(3, 2, self.max_nodes - 1)


class WritesToTheTree(Sound):
    def select(self, cycle: Cycle) -> Selection:
        selection = super().select(cycle)
        cycle.tree.log_probs.setflags(write=True)
        cycle.tree.log_probs[-1] -= 1.0
        return selection


class WritesToTheCycle(Sound):
    def after_level(self, cycle: Cycle) -> bool:
        object.__setattr__(cycle, "context_len", cycle.context_len + 1)
        return True


class DrawsGlobally(Sound):
    def select(self, cycle: Cycle) -> Selection:
        np.random.random()  # noqa: NPY002 - the fault
        return super().select(cycle)


@dataclass
class Drifts(Sound):
    """Counts its cycles over all instances and behaves otherwise at each `period`-th."""

    period: int = 3
    count: ClassVar[int] = 0

    def plan(self, cycle: Cycle) -> DraftPlan:
        Drifts.count += 1
        return DraftPlan(3, 1 if Drifts.count % self.period == 0 else 2, self.max_nodes)


class Remembers(Sound):
    def observe(self, outcome: Outcome) -> None:
        self.total = getattr(self, "total", 0) + len(outcome.accepted)

    def plan(self, cycle: Cycle) -> DraftPlan:
        return DraftPlan(2 if getattr(self, "total", 0) > 4 else 3, 2, self.max_nodes)


@dataclass
class HidesAParameter(Sound):
    depth: int = field(default=3, repr=False)

    def plan(self, cycle: Cycle) -> DraftPlan:
        return DraftPlan(self.depth, 2, self.max_nodes)


class NeedsADraft(Sound):
    def select(self, cycle: Cycle) -> Selection:
        assert not cycle.is_exhausted, "the drafter always adds a level"
        return super().select(cycle)


class NeedsProbabilities(Sound):
    def select(self, cycle: Cycle) -> Selection:
        with np.errstate(divide="raise", invalid="raise"):
            cycle.tree.path_probs / cycle.tree.cond_probs
        return super().select(cycle)


class NeedsAcceptance(Sound):
    def observe(self, outcome: Outcome) -> None:
        assert outcome.accepted or len(outcome.selection) == 1, "something is always accepted"


class NeedsAWholeBlock(Sound):
    """Trips where a stop token cuts the block, and where the token limit does."""

    def observe(self, outcome: Outcome) -> None:
        node = outcome.accepted[-1] if outcome.accepted else 0
        row = int(np.searchsorted(outcome.verification.nodes, node))
        target = outcome.verification.target_tokens[row]
        children = outcome.selection.nodes[
            outcome.cycle.tree.parents[outcome.selection.nodes] == node
        ]
        assert target not in outcome.cycle.tree.tokens[children], "the block went on"


class ReadsTokens(Sound):
    def select(self, cycle: Cycle) -> Selection:
        tree = cycle.tree
        mask = super().select(cycle).mask & ((tree.tokens % 2 == 1) | (tree.parents < 0))
        for node in range(1, len(tree)):
            mask[node] &= mask[tree.parents[node]]
        return Selection(tree, mask)


class TakesTheFirstChild(Sound):
    def select(self, cycle: Cycle) -> Selection:
        nodes = [0]
        while len(children := cycle.tree.children(nodes[-1])):
            nodes.append(int(children[0]))
        return Selection.from_nodes(cycle.tree, nodes)


class RewritesTheText(Sound):
    def observe(self, outcome: Outcome) -> None:
        if len(outcome.committed) > 1:
            object.__setattr__(outcome, "committed", (0, *outcome.committed[1:]))


MUTANTS: list[tuple[str, Callable[[], Policy]]] = [
    ("P1", ReturnsAMask),
    ("P1", PlansNothing),
    ("P1", NeverSaysNo),
    ("P2", SelectsOfACopy),
    ("P3", SelectsTooMany),
    ("P4", WritesToTheTree),
    ("P4", WritesToTheCycle),
    ("P5", DrawsGlobally),
    *(("P6", lambda period=period: Drifts(period=period)) for period in (2, 3, 5, 7)),
    ("P7", Remembers),
    ("P8", lambda: HidesAParameter(depth=1)),
    ("P9", NeedsADraft),
    ("P9", NeedsProbabilities),
    ("P10", NeedsAcceptance),
    ("P10", NeedsAWholeBlock),
    ("P11", ReadsTokens),
    ("P12", TakesTheFirstChild),
    ("P13", RewritesTheText),
]


def test_a_sound_policy_passes() -> None:
    assert check_policy(Sound) == [f"P{i}" for i in range(1, 14)]


@pytest.mark.parametrize(("rule", "make"), MUTANTS)
def test_the_broken_rule_is_named(rule: str, make: Callable[[], Policy]) -> None:
    with pytest.raises(ContractError) as error:
        # DrawsGlobally really draws; the state is put back for the fixture that forbids it.
        state = np.random.get_state()  # noqa: NPY002
        try:
            check_policy(make)
        finally:
            np.random.set_state(state)  # noqa: NPY002
    assert error.value.rule == rule, str(error.value)


def test_every_rule_has_a_mutant() -> None:
    assert {rule for rule, _ in MUTANTS} == set(PolicyContract.rules())
