"""The decode loop: plan, draft and search by levels, select, verify, commit, observe.

The only one: the simulator and the live backends are driven by it, so that a policy cannot tell
them apart and a recorded run replays cycle by cycle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from specfit.core._kernels import fill_accepted
from specfit.core.backend import Backend, Prefill, Request, Verification
from specfit.core.cost import CostModel
from specfit.core.errors import InvalidInputError, InvalidPlanError, InvalidSelectionError
from specfit.core.growing import GrowingPrediction
from specfit.core.history import RoutingHistory
from specfit.core.policy import Cycle, Outcome, Policy
from specfit.core.predictor import AcceptanceModel, CoveragePredictor
from specfit.core.prefetch import Prefetcher, PrefetchView
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan, DraftTree


@dataclass(frozen=True)
class Timings:
    """Seconds of a cycle by part; the cycle's time is their sum.

    `select_s` is all that the policy and its predictions take: planning, searching after each
    level, selecting, and learning from the outcome.
    """

    draft_s: float
    select_s: float
    stall_s: float
    compute_s: float
    commit_s: float

    @property
    def cycle_s(self) -> float:
        """Seconds of the whole cycle."""
        return self.draft_s + self.select_s + self.stall_s + self.compute_s + self.commit_s


@dataclass(frozen=True, eq=False)
class CycleRecord:
    """A finished cycle: what was decided, what came of it, and what it cost."""

    outcome: Outcome
    timings: Timings
    stop_reason: str | None

    @property
    def num_verified(self) -> int:
        """Verified nodes, the root included."""
        return len(self.outcome.selection)

    @property
    def num_committed(self) -> int:
        """Committed tokens."""
        return len(self.outcome.committed)


class Observer:
    """Sees a request go by: a trace writer, a live display, statistics. Every hook is optional."""

    def on_start(self, request: Request, prefill: Prefill) -> None:
        """Take note of a request whose prompt has been run."""

    def on_cycle(self, record: CycleRecord) -> None:
        """Take note of a finished cycle."""

    def on_end(self, tokens: tuple[int, ...], stop_reason: str) -> None:
        """Take note of the end of the request; not called when it is cancelled."""


@dataclass(frozen=True)
class DecodeResult:
    """The text of a request and its cycles.

    Parameters
    ----------
    tokens : tuple of int
        Committed tokens without the prompt. The first comes from the prefill, not from a cycle.
    stop_reason : str
        ``"stop"`` at a stop token, ``"length"`` at the token limit.
    """

    request: Request
    prefill: Prefill
    tokens: tuple[int, ...]
    cycles: tuple[CycleRecord, ...]
    stop_reason: str

    @property
    def decode_s(self) -> float:
        """Seconds of all cycles; the prefill is not among them."""
        return sum(c.timings.cycle_s for c in self.cycles)

    @property
    def num_decoded(self) -> int:
        """Tokens committed by cycles: all but the first, which the prefill gave."""
        return len(self.tokens) - 1


@dataclass(frozen=True)
class DecodeLoop:
    """Continues texts with one policy on one backend.

    Parameters
    ----------
    backend : Backend
        Live or replaying.
    policy : Policy
        Decides; `Policy.reset` is called before each request.
    cost : CostModel
        Predicts the seconds of a cycle.
    predictor : CoveragePredictor
        Predicts the experts of draft nodes.
    acceptance : AcceptanceModel
        Calibrates the drafter's probabilities.
    observers : sequence of Observer
        Told of every cycle, outside its timings.
    policy_key : int
        Key of the generator that policies may draw from.
    prefetcher : Prefetcher, optional
        Chooses experts to copy ahead of each pass; without one nothing is.
    """

    backend: Backend
    policy: Policy
    cost: CostModel
    predictor: CoveragePredictor
    acceptance: AcceptanceModel
    observers: Sequence[Observer] = field(default=())
    policy_key: int = 0
    prefetcher: Prefetcher | None = None

    def __post_init__(self) -> None:
        if self.policy.is_reference and not self.backend.can_foresee:
            raise InvalidInputError(
                f"{type(self.policy).__name__} is a reference that must know the target's answers "
                f"before it runs; {type(self.backend).__name__} does not. Replay a trace with it."
            )

    def run(self, request: Request) -> DecodeResult:
        """Continue the text of a request to its end."""
        stream = self.stream(request)
        cycles: list[CycleRecord] = []
        prefill = next(stream)
        assert isinstance(prefill, Prefill), "the stream starts with the prefill"
        tokens = [prefill.first_token]
        reason = reason_to_stop(request, prefill.first_token, 1)
        for record in stream:
            assert isinstance(record, CycleRecord), "cycles follow the prefill"
            cycles.append(record)
            tokens.extend(record.outcome.committed)
            reason = record.stop_reason
        assert reason is not None, "the stream ends with a reason"
        return DecodeResult(request, prefill, tuple(tokens), tuple(cycles), reason)

    def stream(self, request: Request) -> Iterator[Prefill | CycleRecord]:
        """Yield the prefill, then each finished cycle; closing the iterator cancels the request."""
        self.policy.reset()
        self.acceptance.reset()
        rng = np.random.default_rng(self.policy_key)
        if self.predictor.needs_states:
            self.backend.keep_states()
        prefill = self.backend.start(request)
        for observer in self.observers:
            observer.on_start(request, prefill)
        yield prefill
        history = RoutingHistory(self.backend.geometry)
        history.append(prefill.routing)
        tokens = [prefill.first_token]
        reason = reason_to_stop(request, tokens[-1], len(tokens))
        cycle_index = 0
        while reason is None:
            record = self._cycle(request, history, tokens, cycle_index, rng)
            tokens.extend(record.outcome.committed)
            for observer in self.observers:
                observer.on_cycle(record)
            yield record
            _forget_prediction(record.outcome.cycle)
            reason = record.stop_reason
            cycle_index += 1
        for observer in self.observers:
            observer.on_end(tuple(tokens), reason)

    def _cycle(
        self,
        request: Request,
        history: RoutingHistory,
        tokens: list[int],
        cycle_index: int,
        rng: np.random.Generator,
    ) -> CycleRecord:
        clock = self.backend.clock
        started = clock()
        remaining = request.max_new_tokens - len(tokens)
        self._prefetch(history)
        cycle = self._new_cycle(tokens, len(request.prompt), remaining, cycle_index, history, rng)
        cycle, draft_s = self._draft(cycle)
        selection = self.policy.select(cycle)
        _check_selection(selection, cycle)
        self._prefetch(history, cycle, selection)
        selected = clock()
        verification = self.backend.verify(cycle.tree, selection)
        accepted, emitted = walk(cycle.tree, verification)
        committed = truncate(emitted, request.stop_ids, remaining)
        kept = accepted[: len(committed) - 1]
        verified = clock()
        self.backend.commit(cycle.tree, kept, committed)
        outcome = Outcome(cycle, selection, verification, kept, committed)
        kept_at = clock()
        history.append(*_routing_by_fate(outcome))
        if cycle.levels > 0:
            cycle.accept_probs  # noqa: B018 - what was believed, before the model learns
        self.policy.observe(outcome)
        self.acceptance.observe(outcome)
        timings = Timings(
            draft_s=draft_s,
            select_s=selected - started - draft_s + (clock() - kept_at),
            stall_s=verification.stall_s,
            compute_s=verified - selected - verification.stall_s,
            commit_s=kept_at - verified,
        )
        reason = reason_to_stop(request, committed[-1], len(tokens) + len(committed))
        return CycleRecord(outcome, timings, reason)

    def _prefetch(
        self,
        history: RoutingHistory,
        cycle: Cycle | None = None,
        selection: Selection | None = None,
    ) -> None:
        """Copy ahead what the prefetcher wants, if this is when it is asked."""
        if self.prefetcher is not None and self.prefetcher.before_drafting == (cycle is None):
            view = PrefetchView(self.backend.geometry, history, cycle, selection)
            wanted = self.prefetcher.wanted(view)
            if wanted.any():
                self.backend.prefetch(wanted)

    def _new_cycle(
        self,
        tokens: list[int],
        prompt_len: int,
        remaining: int,
        cycle_index: int,
        history: RoutingHistory,
        rng: np.random.Generator,
    ) -> Cycle:
        residency = self.backend.residency()
        context_len = prompt_len + len(tokens)
        return Cycle(
            tree=DraftTree.root(tokens[-1]),
            levels=0,
            plan=DraftPlan.plain(),
            max_depth=remaining - 1,
            geometry=self.backend.geometry,
            residency=residency,
            context_len=context_len,
            cycle_index=cycle_index,
            acceptance=self.acceptance,
            rng=rng,
            _terms=cache(lambda: self.cost.terms(residency, context_len)),
            _predict=GrowingPrediction(self.predictor, history.snapshot()),
            _foresee=self.backend.foresee if self.policy.is_reference else None,
        )

    def _draft(self, cycle: Cycle) -> tuple[Cycle, float]:
        """Return the cycle with its drafted tree, and the seconds of drafting."""
        plan = self.policy.plan(cycle)
        if not isinstance(plan, DraftPlan):
            raise InvalidPlanError(f"plan must return a DraftPlan; got {type(plan).__name__}.")
        depth = min(plan.depth, cycle.max_depth)
        plan = DraftPlan(depth, plan.top_k, plan.max_nodes)
        if type(self.policy).after_level is not Policy.after_level:
            return self._draft_by_level(replace(cycle, plan=plan))
        before = self.backend.clock()
        tree, is_exhausted = self.backend.draft(plan, cycle.tree)
        draft_s = self.backend.clock() - before
        levels = tree.num_levels
        cycle = replace(cycle, plan=plan, tree=tree, levels=levels, is_exhausted=is_exhausted)
        return cycle, draft_s

    def _draft_by_level(self, cycle: Cycle) -> tuple[Cycle, float]:
        """Ask the policy after each level of the cycle's plan whether to draft another."""
        clock, draft_s = self.backend.clock, 0.0
        while cycle.levels < cycle.plan.depth:
            before = clock()
            level = self.backend.draft_level(cycle.plan, cycle.tree)
            draft_s += clock() - before
            if len(level) == 0:
                return replace(cycle, is_exhausted=True), draft_s
            cycle = replace(cycle, tree=cycle.tree.grow(level), levels=cycle.levels + 1)
            if cycle.levels < cycle.plan.depth and not self.policy.after_level(cycle):
                break
        return cycle, draft_s


def _forget_prediction(cycle: Cycle) -> None:
    """Free the predicted routing of a finished cycle; it is predicted again if asked for."""
    cycle.__dict__.pop("expert_probs", None)
    assert isinstance(cycle._predict, GrowingPrediction), "made by this loop"
    cycle._predict.forget()


def walk(tree: DraftTree, verification: Verification) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the accepted nodes below the root and the tokens that the target emits along them.

    Sample-and-match: at each visited node the target's own token is emitted; where a selected child
    carries it, the walk goes on there. Every emitted token is the target's, so the text is the
    target's for any tree and any selection.
    """
    nodes, answers = verification.nodes, verification.target_tokens
    rows = np.empty(len(nodes), np.intp)
    path = rows[: fill_accepted(tree.parents, tree.tokens, nodes, answers, rows)]
    return tuple(nodes[path[1:]].tolist()), tuple(answers[path].tolist())


def truncate(emitted: tuple[int, ...], stop_ids: frozenset[int], remaining: int) -> tuple[int, ...]:
    """Cut the emitted tokens after the first stop token, and to at most `remaining`."""
    for i, token in enumerate(emitted[:remaining]):
        if token in stop_ids:
            return emitted[: i + 1]
    return emitted[:remaining]


def reason_to_stop(request: Request, last_token: int, num_tokens: int) -> str | None:
    """Return why a text of `num_tokens` committed tokens ends here, or None if it goes on."""
    if last_token in request.stop_ids:
        return "stop"
    return "length" if num_tokens >= request.max_new_tokens else None


def _routing_by_fate(outcome: Outcome) -> tuple[NDArray[np.int16], NDArray[np.int16]]:
    """Return the routing of the nodes that were committed, and of those that were rejected."""
    routing = outcome.verification.routing
    is_kept = np.zeros(len(routing), bool)
    is_kept[np.searchsorted(outcome.verification.nodes, (0, *outcome.accepted))] = True
    return routing[is_kept], routing[~is_kept]


def _check_selection(selection: Selection, cycle: Cycle) -> None:
    if not isinstance(selection, Selection):
        raise InvalidSelectionError(
            f"select must return a Selection; got {type(selection).__name__}."
        )
    if selection.tree is not cycle.tree:
        raise InvalidSelectionError(
            "the selection belongs to another tree. Build it from cycle.tree."
        )
    if len(selection) > cycle.plan.max_nodes:
        raise InvalidSelectionError(
            f"the plan allows {cycle.plan.max_nodes} verified nodes; "
            f"the selection has {len(selection)}."
        )
