"""Decodes texts forced, under one policy after the other; compares cycles with the simulator's."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain
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
from specfit.core.decode import CycleRecord, DecodeLoop, DecodeResult, Observer
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
RECENT = 6
"""Texts and policies on which a profile is fitted, beside the probes."""
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
    orders: Sequence[Sequence[str]],
    passes: ForcedExperts,
    cache: str,
    profile: HardwareProfile,
    inputs: Mapping[str, Inputs],
    probes: Sequence[CycleRecord],
    blocks: RandomBlocks,
) -> Iterator[Decoded]:
    """Decode each text under one policy after the other, all with the same slots.

    The slots are filled anew before each. The order of the policies should change from text to
    text, so that a disk whose speed drifts is as fast for one as for another.

    The profile is fitted before each text and policy: on the probes and on the last `RECENT` texts
    and policies, among them the same text under the policies before. So it knows how long that
    text's nodes, experts and misses took there; it holds seconds a node, expert and copy and
    nothing of routing or acceptance, and never sees a cycle of what it predicts.

    Parameters
    ----------
    texts : sequence of (task, trace, request)
        In the order in which they are decoded.
    orders : sequence of sequence of str
        The policies of each text, in order.
    passes : ForcedExperts
        The slots.
    inputs : mapping
        Of each policy, by its spec.
    blocks : RandomBlocks
        The experts, to fill slots with.
    """
    recent: deque[tuple[CycleRecord, ...]] = deque(maxlen=RECENT)
    for (task, trace, request), policies in zip(texts, orders, strict=True):
        for policy in policies:
            if recent:
                profile = fitted([*probes, *chain(*recent)], profile.expert_bytes)
            result, link = measured(trace, request, policy, passes, profile, inputs[policy], blocks)
            recent.append(result.cycles)
            again = simulated(trace, request, policy, cache, profile, inputs[policy])
            yield Decoded(task, policy, result, again, link)


def rotated(policies: tuple[str, ...], number: int, num_texts: int) -> tuple[str, ...]:
    """Return the order of the policies on a text, by its number; another in each round of texts."""
    first = (number % num_texts + number // num_texts) % len(policies)
    return policies[first:] + policies[:first]


def measured(
    trace: TraceReader,
    request: Request,
    policy: str,
    passes: ForcedExperts,
    profile: HardwareProfile,
    given: Inputs,
    blocks: RandomBlocks,
) -> tuple[DecodeResult, LinkCounters]:
    """Decode a text forced; return it, and what its cycles took of the link."""
    backend, counters = PromptedBackend(trace, passes, profile, blocks), passes.device.counters
    filled = AfterPrompt(counters)
    loop = DecodeLoop(
        backend,
        policy_from(policy),
        ProfileCost(profile),
        given.predictor,
        given.acceptance,
        (filled,),
    )
    result = loop.run(request)
    taken = {name: now - getattr(filled.before, name) for name, now in asdict(counters).items()}
    return result, LinkCounters(**taken)


class AfterPrompt(Observer):
    """Remembers what a link had done when a prompt was over.

    Parameters
    ----------
    counters : LinkCounters
        Of the link.
    """

    def __init__(self, counters: LinkCounters) -> None:
        self._counters = counters
        self.before = replace(counters)

    def on_start(self, request: Request, prefill: Prefill) -> None:
        """See `Observer.on_start`."""
        self.before = replace(self._counters)


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
