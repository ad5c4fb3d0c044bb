"""A finished cycle, decided again: by its own policy or another, over this link or another.

Knows how the decode loop asks a policy; drafts nothing and verifies nothing. The tree is the one
that was drafted, so a policy may stop at an earlier level, but cannot see a deeper one.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from functools import cache as cached
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from specfit.core.backend import Prefill, Request
from specfit.core.cache import ExpertCache
from specfit.core.cache.ahead import AheadOfPass
from specfit.core.cost import CostModel
from specfit.core.decode import CycleRecord, DecodeLoop, Observer
from specfit.core.experts import Residency
from specfit.core.policy import Cycle, Policy
from specfit.core.prefetch import Prefetcher, PrefetchView
from specfit.core.search import (
    LevelSearch,
    ProbPricer,
    SearchProblem,
    SearchResult,
    StopDecision,
)
from specfit.core.tree import DraftPlan
from specfit.sim.expert_pass import read_from_disk, run_pass, run_prefill


@dataclass(frozen=True, eq=False)
class Scene:
    """A finished cycle, with what decided it as it was when the cycle began.

    Parameters
    ----------
    record : CycleRecord
        The cycle and what came of it.
    cycle : Cycle
        The cycle when its selection was made, with the acceptance model of that time.
    policy : Policy
        Copy of the policy when the cycle began; copy it again before it acts.
    prefill : Prefill
        Of the request.
    passes : tuple of int16[n, L, K]
        Experts of the tokens of each earlier pass.
    wanted : tuple of float32[L, E]
        What the prefetcher wanted before each of them, and then before this cycle's drafting if
        that is when it is asked; empty without one.
    """

    record: CycleRecord
    cycle: Cycle
    policy: Policy
    prefill: Prefill
    passes: tuple[NDArray[np.int16], ...]
    wanted: tuple[NDArray[np.float32], ...] = ()

    def residency_in(self, cache: ExpertCache, host: ExpertCache | None = None) -> Residency:
        """Return what another cache would hold, had it seen the same passes; `cache` is changed.

        The same experts are wanted ahead of them, too.

        Parameters
        ----------
        cache : ExpertCache
            Of experts on the device.
        host : ExpertCache, optional
            Of experts in host memory, where it does not hold all; changed, too.
        """
        run_prefill(cache, self.prefill.routing, self.prefill.chunks, host)
        for wanted, routing in zip_longest(self.wanted, self.passes):
            if wanted is not None:
                for plan in AheadOfPass(cache.geometry).fetch(wanted, cache):
                    if host is not None:
                        read_from_disk(host, plan)
            if routing is not None:
                run_pass(cache, routing, host)
        return Residency(cache.residency().mask, None if host is None else host.residency().mask)

    def with_costs(self, cost: CostModel, residency: Residency) -> Cycle:
        """Return the cycle as it would be with other costs and other experts resident."""
        context_len = self.cycle.context_len
        return replace(
            self.cycle,
            residency=residency,
            _terms=cached(lambda: cost.terms(residency, context_len)),
        )


def watch_scene(loop: DecodeLoop, request: Request, cycle_index: int) -> Scene:
    """Run a request up to the end of one cycle and return that cycle's scene.

    Parameters
    ----------
    cycle_index : int
        Of a cycle that the request reaches.
    """
    prefetcher = None if loop.prefetcher is None else _WantedKeeper(loop.prefetcher)
    keeper = _SceneKeeper(loop, cycle_index, prefetcher)
    observers = (*loop.observers, keeper)
    stream = replace(loop, observers=observers, prefetcher=prefetcher).stream(request)
    for _ in stream:
        if keeper.scene is not None:
            stream.close()  # type: ignore[attr-defined] # a generator
            return keeper.scene
    raise IndexError(f"the request has no cycle {cycle_index}")


class _WantedKeeper(Prefetcher):
    """Wants what another prefetcher wants, and keeps it."""

    def __init__(self, prefetcher: Prefetcher) -> None:
        self.before_drafting = prefetcher.before_drafting  # type: ignore[misc] # as the other
        self._prefetcher = prefetcher
        self._kept: list[NDArray[np.float32]] = []

    def wanted(self, view: PrefetchView) -> NDArray[np.float32]:
        self._kept.append(self._prefetcher.wanted(view))
        return self._kept[-1]

    def at_start_of(self, cycle_index: int) -> tuple[NDArray[np.float32], ...]:
        """Return what was wanted until a cycle saw what is resident."""
        return tuple(self._kept[: cycle_index + self.before_drafting])


class _SceneKeeper(Observer):
    """Copies policy and acceptance model before one cycle, and keeps that cycle."""

    def __init__(
        self, loop: DecodeLoop, cycle_index: int, prefetcher: _WantedKeeper | None
    ) -> None:
        self._loop = loop
        self._prefetcher = prefetcher
        self._left = cycle_index
        self._passes: list[NDArray[np.int16]] = []
        self.scene: Scene | None = None

    def on_start(self, request: Request, prefill: Prefill) -> None:
        self._prefill = prefill
        self._copy_if_next()

    def on_cycle(self, record: CycleRecord) -> None:
        if self._left == 0:
            cycle = replace(record.outcome.cycle, acceptance=self._acceptance)
            passes, ahead = tuple(self._passes), self._prefetcher
            wanted = () if ahead is None else ahead.at_start_of(len(passes))
            self.scene = Scene(record, cycle, self._policy, self._prefill, passes, wanted)
        self._passes.append(record.outcome.verification.routing)
        self._left -= 1
        self._copy_if_next()

    def _copy_if_next(self) -> None:
        if self._left == 0:
            self._policy = copy.deepcopy(self._loop.policy)
            self._acceptance = copy.deepcopy(self._loop.acceptance)


@dataclass(frozen=True, eq=False)
class Look:
    """What a policy that searches saw when it was asked whether to draft on.

    Parameters
    ----------
    levels : int
        Levels drafted so far.
    best : SearchResult
        The best selection of the tree so far.
    decision : StopDecision, optional
        Whether to draft on; None where no search asked.
    """

    levels: int
    best: SearchResult
    decision: StopDecision | None


@dataclass(frozen=True, eq=False)
class Decision:
    """What a policy decides in a cycle whose tree is drawn already.

    Parameters
    ----------
    mask : bool[N]
        The nodes it verifies, of the whole tree.
    levels : int
        Levels after which it stops drafting.
    wants_more : bool
        Whether it would draft on below the deepest level of the tree.
    looks : tuple of Look
        What it saw at each level; empty for a policy without a `search`, or that rested.
    problem, best : SearchProblem, SearchResult, optional
        The last search; None for a policy without one, or that rested.
    lost : float
        Part of a copy that the search was charged; the rest is salvaged.
    """

    mask: NDArray[np.bool_]
    levels: int
    wants_more: bool
    looks: tuple[Look, ...] = ()
    problem: SearchProblem | None = None
    best: SearchResult | None = None
    lost: float = 1.0


def decide(policy: Policy, cycle: Cycle, *, to_the_end: bool = False) -> Decision:
    """Ask a policy as the decode loop does: plan, after each level, select.

    Parameters
    ----------
    policy : Policy
        Its state changes. One that exposes a `LevelSearch` as `search` also shows what it saw.
    cycle : Cycle
        A cycle with its tree.
    to_the_end : bool
        Go on to the deepest level of the tree, under the plan in force, whatever the policy says.
    """
    found = getattr(policy, "search", None)
    search = found if isinstance(found, LevelSearch) else None
    looks: list[Look] = []
    if search is not None:
        search.listener = lambda decision: looks.append(
            Look(search.problem.levels, search.best(), decision)
        )
    at = first_levels(cycle, 0)
    plan = policy.plan(at)
    plan = cycle.plan if to_the_end else plan
    depth = min(plan.depth, cycle.max_depth)
    plan = DraftPlan(depth, plan.top_k, plan.max_nodes)
    at = replace(at, plan=plan)
    goes_on = depth > 0
    while goes_on and at.levels < cycle.levels:
        at = replace(first_levels(cycle, at.levels + 1), plan=plan)
        goes_on = at.levels < depth and (policy.after_level(at) or to_the_end)
    selection = policy.select(at)
    mask = np.zeros(len(cycle.tree), bool)
    mask[: len(selection.mask)] = selection.mask
    if search is not None:
        search.listener = None
    if search is None or search.levels < 0:  # it has none, or rested
        return Decision(mask, at.levels, goes_on)
    best, problem = search.best(), copy.deepcopy(search.problem)
    if all(look.levels < at.levels for look in looks):
        looks.append(Look(at.levels, best, None))
    lost = float(getattr(policy, "lost", 1.0))
    return Decision(mask, at.levels, goes_on, tuple(looks), problem, best, lost)


def search_plainly(cycle: Cycle) -> tuple[SearchProblem, SearchResult]:
    """Return the exact search of a whole tree by the cycle's own beliefs: no discount, no limit."""
    pricer = ProbPricer()
    search = LevelSearch(pricer)
    search.start(cycle.terms)
    needs, known = cycle.path_needs(), 0
    for levels in range(cycle.levels + 1):
        count = int(np.count_nonzero(cycle.tree.depths <= levels))
        probs = None if pricer.is_free else needs[known:count]
        search.add_level(cycle.tree.parents[:count], cycle.path_probs[:count], probs)
        known = count
    return search.problem, search.best()


def first_levels(cycle: Cycle, levels: int) -> Cycle:
    """Return the cycle when only so many levels were drafted."""
    if levels == cycle.levels:
        return cycle
    count = int(np.count_nonzero(cycle.tree.depths <= levels))
    return replace(cycle, tree=cycle.tree.first(count), levels=levels, is_exhausted=False)
