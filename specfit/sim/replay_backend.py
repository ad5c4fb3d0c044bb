"""Replays a trace: a backend that answers from what was recorded and charges simulated seconds.

Which experts are resident is decided by the same cache object that live decoding uses, driven by
the recorded routing. What was not recorded is refused, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.core.backend import Backend, Foresight, Prefill, Request, Verification
from specfit.core.cache.base import ExpertCache
from specfit.core.errors import BackendError, InvalidInputError, TraceCoverageError
from specfit.core.experts import Residency
from specfit.core.pass_time import pass_time
from specfit.core.passes import RanPass
from specfit.core.profile import HardwareProfile
from specfit.core.selection import Selection
from specfit.core.tree import DraftLevel, DraftPlan, DraftTree
from specfit.sim.ahead import TimedAhead
from specfit.sim.drawn import EMPTY_LEVEL, DrawnTree, drawn_by_plan, drawn_in_run, only_root
from specfit.sim.expert_pass import run_pass, run_prefill
from specfit.sim.near_ties import NearTie, follow_text
from specfit.sim.trace.reader import RecordedPrompt, RowFinder, TraceReader
from specfit.sim.trace.rows import Answers, PositionRow, PromptRow, Row


class ReplayBackend(Backend):
    """Answers from a trace.

    Parameters
    ----------
    trace : TraceReader
        Of either kind.
    cache : ExpertCache
        Allocated for the trace's geometry.
    profile : HardwareProfile
        Where the simulated seconds come from.
    host : ExpertCache, optional
        Which experts are in host memory, where it does not hold all; the rest is on disk. It hears
        of what is copied to the device only, and starts empty for each prompt.

    Raises
    ------
    InvalidInputError
        A host tier is given, but the profile has no disk, or the cache is a global pool.

    Attributes
    ----------
    near_ties : list of NearTie
        Verified nodes of the text whose recorded answer is not the text's token, which is given.
    """

    can_foresee = True

    def __init__(
        self,
        trace: TraceReader,
        cache: ExpertCache,
        profile: HardwareProfile,
        host: ExpertCache | None = None,
    ) -> None:
        if host is not None and cache.simulator_only:
            raise InvalidInputError(
                f"a host tier must have a cache with slots of its own in each layer before it; "
                f"{type(cache).__name__} has not. Give lru."
            )
        if host is not None and not profile.ssd_s:
            raise InvalidInputError(
                f"a host tier needs a disk behind it; the profile '{profile.name}' has none. Set "
                f"its ssd_bandwidth_bytes_per_s."
            )
        self.trace = trace
        self.host = host
        self.cache = cache
        self.profile = profile
        self.geometry = trace.metadata.geometry
        self.near_ties: list[NearTie] = []
        self._now_s = 0.0
        self._prompt: RecordedPrompt | None = None
        self._groups: Iterator[RowFinder] = iter(())
        self._group: RowFinder | None = None
        self._row: Row | None = None
        self._position = 0  # of the root in the whole text
        self._drawn: DrawnTree | None = None
        self._ahead = TimedAhead(self.geometry)

    def requests(self) -> Iterator[Request]:
        """Yield the trace's requests in order; run each before taking the next."""
        for prompt in self.trace.prompts():
            self._prompt = prompt
            yield prompt.request

    def start(self, request: Request) -> Prefill:
        """See `Backend.start`. The cache starts empty and is filled by the recorded prompt.

        Raises
        ------
        TraceCoverageError
            The trace holds no such request.
        """
        prompt = self._find(request)
        seconds = self._run_prompt(prompt.row)
        self._ahead = TimedAhead(self.geometry)
        self._prompt = prompt
        self._groups = prompt.cursor()
        self._group = self._row = None
        self._position = len(request.prompt)
        self._drawn = None
        return Prefill(prompt.text[0], prompt.row.routing, prompt.row.chunks, seconds)

    def residency(self) -> Residency:
        """See `Backend.residency`."""
        residency = self.cache.residency()
        if self.host is None:
            return residency
        return Residency(residency.mask, self.host.residency().mask)

    def prefetch(self, wanted: NDArray[np.float32]) -> None:
        """See `Backend.prefetch`. What is fetched is resident at once; its time goes by later."""
        self._ahead.fetch(wanted, self.cache, self.host, self._now_s)

    def keep_states(self) -> int:
        """See `Backend.keep_states`; those of the trace are always there."""
        return self.trace.require_states()

    def routing_of(self, selection: Selection) -> NDArray[np.int16]:
        """Return the experts that the target was recorded to use at selected nodes: an oracle.

        Raises
        ------
        TraceCoverageError
            The target's answer for a selected node was not recorded.
        """
        return self._answers(selection).routing

    def draft_level(self, plan: DraftPlan, tree: DraftTree) -> DraftLevel:
        """See `Backend.draft_level`.

        Raises
        ------
        TraceCoverageError
            The trace does not hold this level of this plan.
        """
        first = len(tree) == 1
        if first:
            self._drawn = self._draw(plan)
        drawn = self._drawn
        assert drawn is not None, "a tree is drafted from its root"
        number = drawn.levels_of(len(tree)) + 1
        self._now_s += self.profile.first_level_s if first else self.profile.level_s
        if number <= drawn.num_levels:
            return drawn.level(number)
        if drawn.is_exhausted:
            return EMPTY_LEVEL
        raise self._too_deep(plan, drawn.num_levels)

    def draft(self, plan: DraftPlan, tree: DraftTree) -> tuple[DraftTree, bool]:
        """See `Backend.draft`. The recorded tree, or its first levels.

        Raises
        ------
        TraceCoverageError
            The trace does not hold all levels of this plan.
        """
        if plan.depth == 0:
            return tree, False
        drawn = self._drawn = self._draw(plan)
        levels = min(plan.depth, drawn.num_levels)
        runs_out = levels < plan.depth
        if runs_out and not drawn.is_exhausted:
            raise self._too_deep(plan, levels)
        self._now_s += self.profile.first_level_s + (levels + runs_out - 1) * self.profile.level_s
        return drawn.first_levels(levels), runs_out

    def verify(self, tree: DraftTree, selection: Selection) -> Verification:
        """See `Backend.verify`.

        Raises
        ------
        TraceCoverageError
            The target's answer for a selected node was not recorded.
        """
        nodes, answers = selection.nodes, self._answers(selection)
        if isinstance(self._current_row(), PositionRow):
            answers = self._follow_text(tree, nodes, answers)
        ran = self._run_pass(answers.routing)
        return Verification(
            nodes=nodes,
            target_tokens=answers.target_tokens,
            target_probs=answers.target_probs,
            margins=answers.margins,
            routing=answers.routing,
            num_hits=ran.counts.num_hits,
            num_misses=ran.counts.num_misses,
            num_evictions=ran.counts.num_evictions,
            stall_s=ran.stall_s,
            compute_s=ran.compute_s,
            num_prefetched=ran.num_prefetched,
            num_wasted=ran.num_wasted,
            num_reads=ran.num_reads,
        )

    def commit(
        self, tree: DraftTree, accepted: tuple[int, ...], committed: tuple[int, ...]
    ) -> None:
        """See `Backend.commit`."""
        prompt = self._current_prompt()
        place = self._position - len(prompt.request.prompt) + 1
        if committed != prompt.text[place : place + len(committed)]:
            raise TraceCoverageError(
                f"the replay commits {committed} {self._place()}, the text goes on with "
                f"{prompt.text[place : place + len(committed)]}: the trace contradicts itself."
            )
        self._position += len(committed)
        self._drawn = None

    def foresee(self, plan: DraftPlan, tree: DraftTree) -> Foresight:
        """See `Backend.foresee`.

        Raises
        ------
        TraceCoverageError
            The trace does not hold the whole of this plan, or not every answer to it.
        """
        drawn = self._draw(plan)
        levels = min(plan.depth, drawn.num_levels)
        rows = drawn.answer_rows[: drawn.num_nodes(levels)]
        if (rows < 0).any() or (levels < plan.depth and not drawn.is_exhausted):
            raise TraceCoverageError(
                f"the trace holds not all of the plan and its answers {self._place()}, which a "
                f"reference policy has to know. {_advice(plan)}"
            )
        for number in range(1, levels + 1):
            tree = tree.grow(drawn.level(number))
        row, known = self._current_row(), len(self.near_ties)
        answers = row.answers.take(rows)
        if isinstance(row, PositionRow):
            answers = self._follow_text(tree, np.arange(len(tree)), answers)
            del self.near_ties[known:]  # the pass itself will note them
        return Foresight(tree, answers.target_tokens, answers.routing)

    def node_routing(self, tree: DraftTree) -> NDArray[np.int16]:
        """Return the experts that the target was recorded to use at every node, int16[N, L, K].

        An oracle: a live backend knows this only after `verify`.

        Raises
        ------
        TraceCoverageError
            The recorded run did not verify every node of the tree.
        BackendError
            The cycle is over.
        """
        drawn = only_root(tree) if len(tree) == 1 else self._drawn
        if drawn is None:
            raise BackendError(
                "routing can be looked up until the cycle is committed. Ask for it before."
            )
        rows = drawn.answer_rows[: len(tree)]
        if (rows < 0).any():
            raise TraceCoverageError(
                f"the trace does not hold the routing of node {int(np.argmax(rows < 0))} "
                f"{self._place()}. Record a position-complete trace to use an oracle."
            )
        return self._current_row().answers.take(rows).routing

    def clock(self) -> float:
        """Return the simulated seconds."""
        return self._now_s

    def describe(self) -> dict[str, Any]:
        """See `Backend.describe`."""
        return {
            "backend": "replay",
            "seconds": "simulated",
            "trace": self.trace.folder.name,
            "origin": self.trace.metadata.origin,
            "model": self.trace.metadata.model,
            "cache": type(self.cache).__name__,
            "capacity": self.cache.capacity,
            "profile": self.profile.name,
        }

    def _find(self, request: Request) -> RecordedPrompt:
        if self._prompt is not None and self._prompt.request == request:
            return self._prompt
        for prompt in self.trace.prompts():
            if prompt.request == request:
                return prompt
        raise TraceCoverageError(
            f"{self.trace.folder} holds no such request. Take the requests from the trace "
            f"(ReplayBackend.requests), or record this one."
        )

    def _current_prompt(self) -> RecordedPrompt:
        if self._prompt is None:
            raise BackendError("the backend has no request. Call start first.")
        return self._prompt

    def _current_row(self) -> Row:
        """Return the recorded row whose root is the last committed token."""
        if self._row is None or self._row.position != self._position:
            self._row = self._find_row()
        if self._row is None:
            raise TraceCoverageError(
                f"the trace has no cycle {self._place()}: the recorded run started none there. "
                f"Record a position-complete trace to compare this policy."
            )
        return self._row

    def _find_row(self) -> Row | None:
        if self._group is None or self._group.last_position < self._position:
            ahead = (group for group in self._groups if group.last_position >= self._position)
            self._group = next(ahead, None)
        return self._group.at(self._position) if self._group is not None else None

    def _draw(self, plan: DraftPlan) -> DrawnTree:
        row = self._current_row()
        if isinstance(row, PositionRow):
            prompt = self._current_prompt()
            end = len(prompt.request.prompt) + prompt.request.max_new_tokens
            plans = self.trace.metadata.plans
            try:
                return drawn_by_plan(row, plans, plan.top_k, end - self._position - 2)
            except TraceCoverageError as error:
                raise TraceCoverageError(f"{error} {_advice(plan)}") from error
        if row.plan.top_k != plan.top_k:
            raise TraceCoverageError(
                f"the recorded run drafted with top_k={row.plan.top_k} {self._place()}; the policy "
                f"asked for top_k={plan.top_k}. {_advice(plan)}"
            )
        return drawn_in_run(row)

    def _follow_text(self, tree: DraftTree, nodes: NDArray[np.intp], answers: Answers) -> Answers:
        """Return the answers with the text's own token at each selected node of the text."""
        prompt = self._current_prompt()
        first = self._position - len(prompt.request.prompt) + 1
        ahead = prompt.text[first : first + tree.num_levels + 1]
        for depth, margin in follow_text(tree, nodes, answers, ahead):
            self.near_ties.append(NearTie(prompt.index, self._position + depth + 1, margin))
        return answers

    def _answers(self, selection: Selection) -> Answers:
        """Return the recorded answers at the selected nodes."""
        row, tree = self._current_row(), selection.tree
        drawn = only_root(tree) if len(tree) == 1 else self._drawn
        assert drawn is not None and len(tree) <= len(drawn.tree), "the tree was drafted here"
        nodes = selection.nodes
        rows = drawn.answer_rows[nodes]
        if (rows < 0).any():
            node = int(nodes[int(np.argmax(rows < 0))])
            raise TraceCoverageError(
                f"the trace has no target response for node {node} {self._place()}: the recorded "
                f"run did not verify it. Record a position-complete trace to compare this policy."
            )
        return row.answers.take(rows)

    def _run_prompt(self, prompt: PromptRow) -> float:
        """Fill the cache as the prompt did; return the seconds, which are the recorded ones."""
        run_prefill(self.cache, prompt.routing, prompt.chunks, self.host)
        return prompt.prefill_s

    def _run_pass(self, routing: NDArray[np.int16]) -> RanPass:
        """Take a pass over some nodes through the cache, in simulated seconds."""
        ahead, num_wasted = self._ahead.take(routing, self._now_s)
        counts = run_pass(self.cache, routing, self.host)
        stall_s, compute_s = pass_time(
            self.profile, len(routing), counts.num_hits, counts.num_misses, counts.num_reads, ahead
        )
        self._now_s += stall_s + compute_s
        num_reads = int(counts.num_reads.sum()) + ahead.num_reads
        return RanPass(counts, stall_s, compute_s, ahead.num_copies, num_wasted, num_reads)

    def _too_deep(self, plan: DraftPlan, num_levels: int) -> TraceCoverageError:
        return TraceCoverageError(
            f"the trace holds {num_levels} levels of top_k={plan.top_k} {self._place()}; the "
            f"policy asked for level {num_levels + 1}. {_advice(plan)}"
        )

    def _place(self) -> str:
        return f"at position {self._position} of prompt {self._current_prompt().index}"


def _advice(plan: DraftPlan) -> str:
    return f"Record with --plans eagle3:depth={plan.depth},top_k={plan.top_k}."
