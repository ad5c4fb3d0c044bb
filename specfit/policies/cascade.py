"""Cascade: test chain lengths on the running text, then keep the one of the highest utility.

Source: arXiv 2506.20675. The utility of length K is tokens a cycle over the cycle's time in plain
steps. Plain steps are timed first and again every `refresh` cycles. A test tries up to
`max_trials` lengths for `trial_cycles` cycles each, climbing while utility rises; then the best
is kept for `set_cycles` cycles. If nothing is above 1, nothing is drafted, each time for twice as
long.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field

import numpy as np

from specfit.core.policy import Cycle, Outcome, Policy, register_policy
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan
from specfit.policies._ranges import check_range

Phase = tuple[int, int]
"""Length of the chain, and cycles to run with it."""

Measured = tuple[float, float]
"""Mean committed tokens and mean seconds of those cycles."""


@register_policy("cascade")
@dataclass
class Cascade(Policy):
    """Verify a chain whose length is the best of those tried lately; none if none paid.

    Parameters
    ----------
    depth : int
        Longest chain.
    first_depth : int
        Length that the first test begins with, at most `depth`.
    trial_cycles, max_trials, set_cycles : int
        Cycles of a trial, trials of a test, cycles between tests (the paper's t, M and S).
    tolerance : float
        A test ends when utility changes by no more than this share.
    refresh : int
        Plain steps are timed again after so many cycles.
    """

    depth: int = 7
    first_depth: int = 3
    trial_cycles: int = 4
    max_trials: int = 4
    set_cycles: int = 16
    tolerance: float = 0.1
    refresh: int = 100
    _control: Generator[Phase, Measured, None] = field(init=False, repr=False, compare=False)
    _length: int = field(init=False, repr=False, compare=False)
    _left: int = field(init=False, repr=False, compare=False)
    _seen: list[Measured] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_range(self, "depth trial_cycles max_trials set_cycles refresh", 1)
        check_range(self, "first_depth", 1, self.depth)
        check_range(self, "tolerance", 0)
        self.reset()

    def plan(self, cycle: Cycle) -> DraftPlan:
        """Draft a chain of the length in force."""
        if self._length == 0:
            return DraftPlan.plain()
        return DraftPlan(self._length, 1, self._length + 1)

    def select(self, cycle: Cycle) -> Selection:
        """Select all of it."""
        return Selection(cycle.tree, np.ones(len(cycle.tree), bool))

    def observe(self, outcome: Outcome) -> None:
        """Measure the cycle; move on when the phase is over."""
        cycle, verification = outcome.cycle, outcome.verification
        draft_s = float(cycle.terms.draft_s[cycle.levels])
        cycle_s = draft_s + verification.stall_s + verification.compute_s
        self._seen.append((float(len(outcome.committed)), cycle_s))
        if len(self._seen) == self._left:
            tokens, seconds = np.mean(self._seen, axis=0).tolist()
            self._begin(self._control.send((tokens, seconds)))

    def reset(self) -> None:
        """Begin with plain steps."""
        self._control = self._phases()
        self._begin(next(self._control))

    def _begin(self, phase: Phase) -> None:
        self._length, self._left = phase
        self._seen = []

    def _phases(self) -> Generator[Phase, Measured, None]:
        """Yield phases for ever; each is answered by what was measured in it."""
        best, pause, age = self.first_depth, self.set_cycles, self.refresh
        while True:
            if age >= self.refresh:
                _, plain_s = yield 0, self.trial_cycles
                age = 0
            utilities = yield from self._test(best, plain_s)
            chosen = max(utilities, key=lambda length: utilities[length])
            if utilities[chosen] < 1.0:
                pause *= 2
                _, plain_s = yield 0, pause
                age = 0
            else:
                best, pause = chosen, self.set_cycles
                yield best, pause
                age += pause + len(utilities) * self.trial_cycles

    def _test(self, first: int, plain_s: float) -> Generator[Phase, Measured, dict[int, float]]:
        """Climb from a length; return the utility of each length tried."""
        utilities: dict[int, float] = {}
        length, step, last = first, 1, None
        while len(utilities) < self.max_trials and 1 <= length <= self.depth:
            tokens, seconds = yield length, self.trial_cycles
            utility = utilities[length] = tokens / (seconds / plain_s)
            if last is not None and abs(utility - last) <= self.tolerance * last:
                break
            if last is not None and utility < last:
                if step < 0 or len(utilities) > 2:
                    break
                length, step, last = first - 1, -1, utilities[first]
            else:
                length, last = length + step, utility
        return utilities
