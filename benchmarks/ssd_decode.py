"""Decodes texts forced, by turns under each policy, and holds every cycle against the simulator."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks.ssd_profile import fitted, simulated
from specfit.backends.device import LinkCounters
from specfit.backends.forced import ForcedExperts
from specfit.backends.random_bank import RandomBlocks
from specfit.cli.inputs import Inputs
from specfit.cli.specs import policy_from
from specfit.core.backend import Prefill, Request
from specfit.core.cost import ProfileCost
from specfit.core.decode import CycleRecord, DecodeLoop, DecodeResult
from specfit.core.profile import HardwareProfile
from specfit.sim.expert_pass import run_prefill
from specfit.sim.forced_backend import ForcedBackend
from specfit.sim.metrics import measure
from specfit.sim.trace import TraceReader
from specfit.sim.trace.rows import PromptRow

COUNTS = ("num_hits", "num_misses", "num_evictions")
HICCUP = 3.0
"""Times the predicted seconds, from which on a cycle met a hiccup of the machine; counted, and left
out of the speed without hiccups under every policy."""
ALL = "all"
"""The texts of all tasks together."""


class PromptedBackend(ForcedBackend):
    """A forced backend that does not run the prompt, but fills the slots with what it would leave.

    A long prompt needs nearly all experts; reading them is most of a short run, and not measured.
    The slots are filled from memory.
    """

    def __init__(
        self,
        trace: TraceReader,
        passes: ForcedExperts,
        profile: HardwareProfile,
        blocks: RandomBlocks,
    ) -> None:
        super().__init__(trace, passes, profile)
        self._store = passes.store
        self._blocks = blocks

    def _run_prompt(self, prompt: PromptRow) -> float:
        run_prefill(self.cache, prompt.routing, prompt.chunks)
        self._store.refill(self._blocks)
        return 0.0


@dataclass(frozen=True)
class Decoded:
    """A text under one policy: measured, and what the simulator makes of it.

    Parameters
    ----------
    task, policy : str
        What was decoded, and how.
    result, again : DecodeResult
        Measured, and simulated with the profile that was in force.
    link : LinkCounters
        What decoding it took.
    """

    task: str
    policy: str
    result: DecodeResult
    again: DecodeResult
    link: LinkCounters


def decode(
    texts: Sequence[tuple[str, TraceReader, Request]],
    machines: Mapping[str, ForcedExperts],
    cache: str,
    profile: HardwareProfile,
    inputs: Mapping[str, Inputs],
    probes: Sequence[CycleRecord],
    blocks: RandomBlocks,
) -> Iterator[Decoded]:
    """Decode each text under all policies at once, cycle by cycle by turns.

    The next cycle is that of the policy that has had the least time, so that a disk whose speed
    drifts is as fast for one as for another. Each policy has slots of its own. The profile is
    fitted anew before each text, on the probes and on the last two texts; it never sees the text
    that it predicts.

    Parameters
    ----------
    texts : sequence of (task, trace, request)
        In the order in which they are decoded.
    machines, inputs : mapping
        Slots and inputs of each policy, by its spec.
    blocks : RandomBlocks
        The experts, to fill slots with.
    """
    done: list[list[CycleRecord]] = []
    for task, trace, request in texts:
        known = [cycle for cycles in done[-2:] for cycle in cycles]
        if known:
            profile = fitted([*probes, *known], profile.expert_bytes)
        turns = [
            Turn.start(trace, request, policy, machines[policy], profile, inputs[policy], blocks)
            for policy in inputs
        ]
        while waiting := [turn for turn in turns if turn.reason is None]:
            min(waiting, key=lambda turn: turn.seconds).step()
        done.append([cycle for turn in turns for cycle in turn.cycles])
        for turn in turns:
            again = simulated(trace, request, turn.policy, cache, profile, inputs[turn.policy])
            yield Decoded(task, turn.policy, turn.result(request), again, turn.link)


@dataclass
class Turn:
    """A text under one policy, of which a cycle at a time is decoded."""

    policy: str
    prefill: Prefill
    stream: Iterator[Prefill | CycleRecord]
    counters: LinkCounters
    cycles: list[CycleRecord] = field(default_factory=list)
    link: LinkCounters = field(default_factory=LinkCounters)
    seconds: float = 0.0
    reason: str | None = None

    @classmethod
    def start(
        cls,
        trace: TraceReader,
        request: Request,
        policy: str,
        passes: ForcedExperts,
        profile: HardwareProfile,
        given: Inputs,
        blocks: RandomBlocks,
    ) -> Turn:
        """Begin the text."""
        backend = PromptedBackend(trace, passes, profile, blocks)
        loop = DecodeLoop(
            backend,
            policy_from(policy),
            ProfileCost(profile),
            given.predictor,
            given.acceptance,
        )
        stream = loop.stream(request)
        prefill = next(stream)
        assert isinstance(prefill, Prefill), "the stream starts with the prefill"
        return cls(policy, prefill, stream, passes.device.counters)

    def step(self) -> None:
        """Decode a cycle."""
        before = replace(self.counters)
        record = next(self.stream)
        assert isinstance(record, CycleRecord), "cycles follow the prefill"
        for name, now in asdict(self.counters).items():
            more = now - getattr(before, name)
            setattr(self.link, name, getattr(self.link, name) + more)
        self.cycles.append(record)
        self.seconds += record.timings.cycle_s
        self.reason = record.stop_reason

    def result(self, request: Request) -> DecodeResult:
        """Return the finished text."""
        assert self.reason is not None, "it is finished"
        tokens = [self.prefill.first_token]
        tokens += [token for cycle in self.cycles for token in cycle.outcome.committed]
        return DecodeResult(request, self.prefill, tuple(tokens), tuple(self.cycles), self.reason)


def row_of(decoded: Sequence[Decoded], expert_bytes: int) -> dict[str, Any]:
    """Return what some texts under one policy show."""
    results, again = [d.result for d in decoded], [d.again for d in decoded]
    metrics, foretold = measure(results, expert_bytes), measure(again, expert_bytes)
    cycles = [c.timings for r in results for c in r.cycles]
    measured = np.array([timings.cycle_s for timings in cycles])
    predicted = np.array([c.timings.cycle_s for r in again for c in r.cycles])
    wrong = differing_cycles(results, again)
    committed = np.array([c.num_committed for r in results for c in r.cycles])
    calm = measured < HICCUP * predicted if not wrong else np.ones(len(measured), bool)
    errors = np.abs(predicted / measured - 1) if not wrong else np.array([np.nan])
    num_bytes, busy_s = (
        sum(getattr(d.link, name) for d in decoded) for name in ("num_bytes", "busy_s")
    )
    return {
        "texts": len(decoded),
        "tokens_per_s": metrics.tokens_per_s,
        "hiccups": int((~calm).sum()),
        "tokens_per_s_without_hiccups": float(committed[calm].sum() / measured[calm].sum()),
        "simulated_tokens_per_s": foretold.tokens_per_s,
        "tokens_per_s_by_text": [r.num_decoded / r.decode_s for r in results],
        "committed": metrics.num_committed,
        "committed_per_cycle": metrics.num_committed / metrics.num_cycles,
        "cycles": metrics.num_cycles,
        "read_bytes_per_token": num_bytes / metrics.num_committed,
        "read_bytes_per_s": num_bytes / busy_s if busy_s else 0.0,
        "stall_share": sum(d.link.stall_s for d in decoded) / float(measured.sum()),
        "select_share": sum(t.select_s for t in cycles) / float(measured.sum()),
        "measured_cycle_s": float(measured.mean()),
        "predicted_cycle_s": float(predicted.mean()),
        "cycle_error_median": float(np.median(errors)),
        "cycle_error_p95": float(np.quantile(errors, 0.95)),
        "cycles_that_differ_from_the_simulator": wrong,
    }


def differing_cycles(ours: Sequence[DecodeResult], theirs: Sequence[DecodeResult]) -> int:
    """Return how many cycles have another selection or other counts than the simulator's."""
    wrong = 0
    for a, b in zip(ours, theirs, strict=True):
        wrong += abs(len(a.cycles) - len(b.cycles))
        for x, y in zip(a.cycles, b.cycles, strict=False):
            pairs = [(getattr(v, n), getattr(w, n)) for n in COUNTS for v, w in [_answers(x, y)]]
            pairs.append((x.outcome.selection.nodes, y.outcome.selection.nodes))
            wrong += not all(np.array_equal(p, q) for p, q in pairs)
    return wrong


def _answers(x: Any, y: Any) -> tuple[Any, Any]:
    return x.outcome.verification, y.outcome.verification
