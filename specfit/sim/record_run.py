"""Records what a live run does: an observer of the decode loop that writes a run trace."""

from __future__ import annotations

import numpy as np

from specfit.core.backend import Prefill, Request
from specfit.core.decode import CycleRecord, Observer
from specfit.core.errors import InvalidInputError
from specfit.sim.trace.rows import Answers, CycleRow, Decisions, PromptRow
from specfit.sim.trace.writer import TraceWriter


class RunRecorder(Observer):
    """Writes every request that comes to its end; a cancelled one is dropped.

    Parameters
    ----------
    writer : TraceWriter
        Of a trace of kind ``"run"``.
    """

    def __init__(self, writer: TraceWriter) -> None:
        self._writer = writer
        self._request: Request | None = None
        self._prefill: Prefill | None = None
        self._num_tokens = 0  # of the text so far, prompt included
        self._num_cycles = 0

    def on_start(self, request: Request, prefill: Prefill) -> None:
        """Open a prompt.

        Raises
        ------
        InvalidInputError
            A part of it was not run, so that a replay could not fill its cache.
        """
        if prefill.num_kept:
            raise InvalidInputError(
                f"a recorded prompt must be run whole; {prefill.num_kept} of its "
                f"{len(request.prompt)} tokens were kept. Record requests without keeps_prefix."
            )
        self._writer.abandon_prompt()
        self._request, self._prefill = request, prefill
        self._num_tokens = len(request.prompt) + 1
        self._num_cycles = 0

    def on_cycle(self, record: CycleRecord) -> None:
        """Write a cycle."""
        outcome = record.outcome
        self._writer.add(
            CycleRow(
                prompt=self._writer.next_prompt,
                cycle=self._num_cycles,
                position=self._num_tokens - 1,
                plan=outcome.cycle.plan,
                tree=outcome.cycle.tree,
                is_exhausted=outcome.cycle.is_exhausted,
                answered=outcome.verification.nodes.astype(np.int32),
                answers=_answers(record),
                decisions=_decisions(record),
                timings=record.timings,
            )
        )
        self._num_tokens += len(outcome.committed)
        self._num_cycles += 1

    def on_end(self, tokens: tuple[int, ...], stop_reason: str) -> None:
        """Write the prompt and its text."""
        request, prefill = self._request, self._prefill
        assert request is not None and prefill is not None, "a request starts before it ends"
        self._writer.end_prompt(
            PromptRow(
                index=self._writer.next_prompt,
                request=request,
                text=tokens,
                stop_reason=stop_reason,
                routing=prefill.routing,
                chunks=prefill.chunks,
                prefill_s=prefill.seconds,
            )
        )


def _answers(record: CycleRecord) -> Answers:
    verification = record.outcome.verification
    return Answers(
        target_tokens=verification.target_tokens,
        target_probs=verification.target_probs,
        margins=verification.margins,
        routing=verification.routing,
    )


def _decisions(record: CycleRecord) -> Decisions:
    outcome, verification = record.outcome, record.outcome.verification
    return Decisions(
        selected=outcome.selection.nodes.astype(np.int32),
        accepted=np.array(outcome.accepted, np.int32),
        committed=np.array(outcome.committed, np.int32),
        num_hits=verification.num_hits,
        num_misses=verification.num_misses,
        num_evictions=verification.num_evictions,
        prediction=outcome.selection.prediction,
    )
