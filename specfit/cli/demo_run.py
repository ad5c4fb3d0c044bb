"""The work of the demo: decode live, compare with the stock model, record, replay."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from specfit.cli.live import Live, open_live
from specfit.cli.live_options import LiveOptions
from specfit.cli.prompts import Prompt, read_prompts
from specfit.cli.replay import Replayer
from specfit.cli.specs import plan_from, policy_from
from specfit.core.decode import DecodeResult, Observer
from specfit.data import PROMPTS
from specfit.report.comparison import Comparison, Contender
from specfit.report.runs import Run
from specfit.sim.trace import TraceReader

if TYPE_CHECKING:
    from rich.progress import Progress

    from specfit.core.backend import Request
    from specfit.core.policy import Policy
    from specfit.core.profile import HardwareProfile

EAGLE3 = "eagle3:depth=5,top_k=4,max_nodes=30"
"""A usual tree for a budget of 30 nodes; not tuned to the cache."""
WARM_UP_TOKENS = 8
DECODE_S = 70.0
"""Seconds in which all entries decode all prompts, by their copies; the option's help says so."""
COPIES_PER_TOKEN = 200
"""Roughly the copies that all entries together need for one token of a text."""
MIN_TOKENS, MAX_TOKENS = 16, 48
THREADS = 1
"""The bundled model is too small for two threads to help, and a copy thread runs beside."""


@dataclass(frozen=True)
class DemoOptions:
    """What the demo decodes.

    Parameters
    ----------
    model : str
        Bundled model or checkpoint folder.
    cache : str
        Expert cache of the policies that share one.
    max_new_tokens : int, optional
        Length of each text; by default what this machine does in about `DECODE_S`.
    prompts : Path, optional
        Prompt file; the bundled one by default.
    """

    model: str
    cache: str
    max_new_tokens: int | None
    prompts: Path | None


@dataclass(frozen=True)
class Entry:
    """A policy with a cache, by the name under which it is shown."""

    label: str
    policy: str
    cache: str


@dataclass(frozen=True, eq=False)
class DemoRun:
    """Everything that the demo found out.

    Parameters
    ----------
    live : Live
        What it ran on.
    prompts : tuple of Prompt
        What it continued.
    reference : tuple of tuple of int
        The stock model's own greedy tokens, one text a prompt.
    comparison : Comparison
        The policies, live and replayed.
    is_replay_exact : bool
        Whether the replayed run trace repeats every cycle of the live run.
    """

    live: Live
    prompts: tuple[Prompt, ...]
    reference: tuple[tuple[int, ...], ...]
    comparison: Comparison
    is_replay_exact: bool

    def differing_texts(self) -> list[str]:
        """Return the policy and prompt of every text that is not the stock model's."""
        return [
            f"{contender.label} ({contender.live.cache}) on {prompt.id}"
            for contender in self.comparison.contenders
            for prompt, result, expected in zip(
                self.prompts, contender.live.results, self.reference, strict=True
            )
            if result.tokens != expected
        ]


def entries_of(cache: str) -> tuple[Entry, ...]:
    """Return what the demo compares; plain decoding comes first."""
    return (
        Entry("autoregressive", "autoregressive", cache),
        Entry("eagle3", EAGLE3, cache),
        Entry("specfit", "specfit", cache),
        Entry("eagle3", EAGLE3, "none"),
    )


def run_demo(options: DemoOptions, folder: Path, bars: Progress) -> DemoRun:
    """Do all of the demo; traces and the measured profile go to `folder`."""
    prompts = read_prompts(options.prompts or PROMPTS / "demo.jsonl")
    entries = entries_of(options.cache)
    wanted = LiveOptions(model=options.model, cache=options.cache, link="pcie4", threads=THREADS)
    recorded, runs = folder / "trace", folder / "trace-run"
    with open_live(wanted, bars) as live:
        live.profile.write(folder / "profile.toml")
        num_tokens = options.max_new_tokens or affordable_tokens(live.profile, len(prompts))
        requests = [live.request(p.text, num_tokens) for p in prompts]
        reference = stock_texts(live, requests, bars)
        results = decode_interleaved(live, entries, requests, runs, bars)
        record_every_position(live, requests, recorded, bars)
    replayed = replay_entries(recorded, live, entries, bars)
    expert_bytes = live.backend.geometry.expert_bytes
    contenders = tuple(
        Contender(e.label, Run(e.policy, e.cache, tuple(found), expert_bytes), again)
        for e, found, again in zip(entries, results, replayed, strict=True)
    )
    ours = contenders[2]
    (again,) = replay_entries(runs, live, entries[2:3], bars)
    return DemoRun(
        live,
        tuple(prompts),
        tuple(reference),
        Comparison(contenders, contenders[0]),
        same_cycles(ours.live.results, again.results),
    )


def affordable_tokens(profile: HardwareProfile, num_prompts: int) -> int:
    """Return the length of texts that all entries decode in about `DECODE_S` on this machine."""
    affordable = DECODE_S / (num_prompts * COPIES_PER_TOKEN * profile.copy_s)
    return int(min(max(affordable, MIN_TOKENS), MAX_TOKENS))


def stock_texts(live: Live, requests: Sequence[Request], bars: Progress) -> list[tuple[int, ...]]:
    """Return what the unmodified model of transformers generates, greedily, for each request."""
    from specfit.backends.reference import StockModel

    stock = StockModel(live.backend.checkpoint.folder)
    tracked = bars.track(requests, description="stock transformers, greedy")
    return [stock.generate(request) for request in tracked]


def decode_interleaved(
    live: Live, entries: Sequence[Entry], requests: Sequence[Request], trace: Path, bars: Progress
) -> list[list[DecodeResult]]:
    """Decode every request under every entry, prompt by prompt, each time in another order.

    The run of the entry named specfit is recorded in `trace`.
    """
    from specfit.cli.record import run_writer
    from specfit.sim.record_run import RunRecorder

    policies = [policy_from(entry.policy) for entry in entries]
    warm_up(live, policies, requests[0])
    results: list[list[DecodeResult]] = [[] for _ in entries]
    task = bars.add_task("decoding live", total=len(entries) * len(requests))
    ours = next(i for i, entry in enumerate(entries) if entry.policy == "specfit")
    with run_writer(live, policies[ours], trace) as writer:
        recorder = RunRecorder(writer)
        for turn, request in enumerate(requests):
            for i in rotated(range(len(entries)), turn):
                bars.update(task, description=f"decoding live: {entries[i].label}")
                live.backend.set_cache(entries[i].cache)
                observers: list[Observer] = [recorder] if i == ours else []
                results[i].append(live.loop(policies[i], observers).run(request))
                bars.advance(task)
    return results


def warm_up(live: Live, policies: Sequence[Policy], request: Request) -> None:
    """Decode a few tokens under each policy outside the clock."""
    short = replace(request, max_new_tokens=min(WARM_UP_TOKENS, request.max_new_tokens))
    for policy in policies:
        live.loop(policy).run(short)


def record_every_position(
    live: Live, requests: Sequence[Request], trace: Path, bars: Progress
) -> None:
    """Write a trace from which each entry can be replayed; the experts are resident meanwhile."""
    from specfit.cli.record import record_positions

    plans = (plan_from("specfit"), plan_from(EAGLE3))
    link = live.backend.device.link
    live.backend.set_cache("lru:100%")
    live.backend.set_link(None)
    record_positions(live, requests, plans, trace, bars)
    live.backend.set_link(link)


def replay_entries(trace: Path, live: Live, entries: Sequence[Entry], bars: Progress) -> list[Run]:
    """Replay a trace under each entry, with the profile that the live run used."""
    reader = TraceReader(trace)
    replayer = Replayer(reader, live.profile, live.cost, live.inputs)
    task = bars.add_task("replaying", total=len(entries) * reader.num_prompts)
    return [
        replayer.run(entry.policy, entry.cache, (), lambda: bars.advance(task)) for entry in entries
    ]


def rotated(items: Iterable[int], turn: int) -> list[int]:
    """Return the items in an order that starts elsewhere at each turn."""
    listed = list(items)
    start = turn % len(listed)
    return listed[start:] + listed[:start]


def same_cycles(live: Sequence[DecodeResult], replayed: Sequence[DecodeResult]) -> bool:
    """Return whether every selection, accepted path, hit and miss is the same, cycle by cycle."""
    return [_decisions(r) for r in live] == [_decisions(r) for r in replayed]


def _decisions(result: DecodeResult) -> list[tuple[object, ...]]:
    outcomes = [cycle.outcome for cycle in result.cycles]
    return [
        (
            o.selection.nodes.tolist(),
            o.accepted,
            o.committed,
            o.verification.num_hits.tolist(),
            o.verification.num_misses.tolist(),
        )
        for o in outcomes
    ]
