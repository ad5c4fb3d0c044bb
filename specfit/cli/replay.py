"""`specfit replay`: what other policies and caches would have made of a recorded trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specfit.cli import options
from specfit.cli.console import print_json, print_note, print_table, progress
from specfit.cli.option_groups import with_options
from specfit.cli.replay_options import ReplayOptions
from specfit.core.errors import InvalidInputError

if TYPE_CHECKING:
    from specfit.backends.random_bank import RandomMachine
    from specfit.cli.inputs import Inputs
    from specfit.core.cost import CostModel
    from specfit.core.profile import HardwareProfile
    from specfit.report.runs import Run
    from specfit.sim.replay import NearTie
    from specfit.sim.trace import TraceMetadata, TraceReader

Timeline = Annotated[
    Path | None,
    typer.Option("--timeline", help="JSON file to open in Perfetto; of one policy and cache."),
]

Plot = Annotated[
    Path | None,
    typer.Option("--plot", help="Picture of the simulated speeds: a .png, and a .svg beside it."),
]

RunOn = Annotated[
    str | None,
    typer.Option(
        "--backend",
        help="cpu, ssd, cuda or cuda:N: move and compute random experts for real, as the trace "
        "decides; no text comes of it. By default all is simulated.",
    ),
]
Folder = Annotated[
    Path, typer.Option("--folder", help="Where --backend ssd writes, and removes, its experts.")
]


@with_options
def replay(
    *,
    trace: options.TraceFolder,
    policy: options.Policies = [],  # noqa: B006 - typer copies
    cache: options.Caches = [],  # noqa: B006 - typer copies
    settings: options.Settings = [],  # noqa: B006 - typer copies
    cost: options.RecordedCost = None,
    replay_options: ReplayOptions,
    prefetch: options.RecordedPrefetch = None,
    host: options.RecordedHost = None,
    backend: RunOn = None,
    experts: options.Experts = None,
    folder: Folder = Path(),
    timeline: Timeline = None,
    plot: Plot = None,
    as_json: options.Json = False,
) -> None:
    """Replay a trace under other policies and caches, in simulated time: no model, no GPU needed.

    By default under the policy, with the cache, the cost model and the prefetching of the
    recording. With --backend passes run for real, over random experts.

    Example: specfit replay trace/ --policy eagle3:depth=5,top_k=4 --policy specfit --cache lru:50%
    """
    from specfit.cli.forced import machine_of
    from specfit.cli.input_specs import chosen_inputs
    from specfit.cli.outputs import check_can_write
    from specfit.cli.specs import cost_from, host_from
    from specfit.sim.timeline import write_timeline
    from specfit.sim.trace import TraceReader

    if backend is not None and plot is not None:
        raise InvalidInputError(
            "--plot shows simulated speeds; --backend runs passes for real. Leave one out."
        )
    if experts is not None and backend is None:
        raise InvalidInputError(
            "--experts says how the experts of --backend are kept; no --backend was given. Give "
            "one, or simulate with a --profile of such experts."
        )
    reader = TraceReader(trace)
    host = host_from(host or ("trace" if backend is None else "none"), reader.metadata)
    ours = recorded_policy(reader.metadata)
    policy = policy or ([ours] if ours else ["autoregressive", "specfit"])
    if settings and len(policy) > 1:
        raise InvalidInputError(
            f"--set needs exactly one --policy; got {len(policy)}, {', '.join(policy)}. "
            f"Give one, or write name:key=value."
        )
    cache = cache or [reader.metadata.specs.get("cache") or "lru:25%"]
    if timeline is not None and len(policy) * len(cache) > 1:
        raise InvalidInputError(
            f"--timeline shows one policy with one cache; got {len(policy)} and {len(cache)}. "
            f"Give one --policy and one --cache."
        )
    check_can_write(*(path for path in (timeline, plot) if path is not None))
    for gap in reader.missing:
        print_note(f"warning: {gap}")
    hardware = hardware_of(reader, replay_options.profile, replay_options.overlap)
    inputs = chosen_inputs(
        reader.metadata,
        replay_options.model,
        replay_options.predictor,
        replay_options.acceptance,
    )
    replayer = Replayer(
        reader,
        hardware,
        cost_from(cost or recorded_cost(reader.metadata), hardware),
        inputs,
        replay_options.max_prompts,
        prefetch=prefetch or reader.metadata.specs.get("prefetch") or "none",
        host=host,
    )
    specs = [(p, c) for c in cache for p in policy]
    with machine_of(backend, reader, folder, experts, host) as machine, progress() as bars:
        replayer = replace(replayer, machine=machine)
        task = bars.add_task("replaying", total=replayer.num_prompts * len(specs))
        runs = [replayer.run(p, c, settings, lambda: bars.advance(task)) for p, c in specs]
    note_near_ties(replayer.near_ties)
    if timeline is not None:
        title = f"{runs[0].policy}, cache {runs[0].cache}, {replayer.seconds}"
        write_timeline(runs[0].results, timeline, title)
    if plot is not None:
        write_plot(replayer, runs, plot)
    if as_json:
        print_json(json_rows(replayer, runs))
    else:
        print_tables(replayer, runs)


@dataclass(frozen=True)
class Replayer:
    """Replays one trace as often as wanted.

    Parameters
    ----------
    reader : TraceReader
        The trace.
    hardware : HardwareProfile
        Where simulated seconds come from.
    cost : CostModel
        What policies believe of the time of a cycle.
    inputs : Inputs
        Predictor and acceptance model.
    max_prompts : int, optional
        Replay only the first so many prompts.
    near_ties : list of NearTie
        Gets the near ties that are met.
    policy_key : int
        Key of the generator that policies may draw from.
    prefetch : str
        Spec of the prefetcher.
    host : str, optional
        Spec of the cache that says which experts are in host memory.
    machine : RandomMachine, optional
        Runs the passes; without one they are simulated.
    """

    reader: TraceReader
    hardware: HardwareProfile
    cost: CostModel
    inputs: Inputs
    max_prompts: int | None = None
    near_ties: list[NearTie] = field(default_factory=list)
    policy_key: int = 0
    prefetch: str = "none"
    host: str | None = None
    machine: RandomMachine | None = None

    @property
    def kind(self) -> str:
        """How seconds come about, in a word."""
        return "simulated" if self.machine is None else "measured"

    @property
    def seconds(self) -> str:
        """How seconds come about."""
        if self.machine is None:
            return f"simulated from profile '{self.hardware.name}' ({self.hardware.kind})"
        return f"measured on {self.machine.label}: experts alone, no attention, drafting or text"

    @property
    def num_prompts(self) -> int:
        """Prompts of each run."""
        return min(self.max_prompts or self.reader.num_prompts, self.reader.num_prompts)

    def run(
        self, policy: str, cache: str, settings: Sequence[str], on_prompt: Callable[[], None]
    ) -> Run:
        """Replay the trace under one policy with one cache."""
        from specfit.cli.specs import policy_from, prefetcher_from, spec_with
        from specfit.core.cache import make_cache
        from specfit.report.runs import Run
        from specfit.sim.replay import replay as replay_trace

        geometry = (self.machine or self.reader.metadata).geometry
        rule = make_cache(cache, geometry, live=self.machine is not None)
        is_simulated = self.machine is None and self.host is not None
        in_host = make_cache(str(self.host), geometry) if is_simulated else None
        results = []
        for result in replay_trace(
            self.reader,
            policy_from(policy, settings),
            rule,
            self.hardware,
            cost=self.cost,
            predictor=self.inputs.predictor,
            acceptance=self.inputs.acceptance,
            policy_key=self.policy_key,
            max_prompts=self.max_prompts,
            near_ties=self.near_ties,
            prefetcher=prefetcher_from(self.prefetch),
            host=in_host,
            passes=None if self.machine is None else self.machine.passes(rule),
        ):
            results.append(result)
            on_prompt()
        return Run(spec_with(policy, settings), cache, tuple(results), geometry.expert_bytes)


def note_near_ties(near_ties: Sequence[NearTie]) -> None:
    """Say on stderr how many recorded answers differ from the text, and by how little."""
    if near_ties:
        places = {(tie.prompt, tie.position): tie.margin for tie in near_ties}
        print_note(
            f"near ties: at {len(places)} positions the recorded answer is not the text's token, "
            f"because a wider pass rounds otherwise; the text's was taken. "
            f"Largest lead: {max(places.values()):.2g} logits."
        )


def recorded_policy(metadata: TraceMetadata) -> str | None:
    """Return the spec of the policy that a run trace was recorded with, if there is one."""
    from specfit.cli.specs import policy_from

    recorded = metadata.specs.get("policy")
    if not isinstance(recorded, dict):
        return None
    usual = policy_from(str(recorded["name"])).to_spec()["params"]
    return _spec_of(recorded, usual)


def recorded_cost(metadata: TraceMetadata) -> str:
    """Return the spec of the cost model that a trace was recorded with, or else ``profile``."""
    recorded = metadata.specs.get("cost")
    return _spec_of(recorded, {}) if isinstance(recorded, dict) else "profile"


def _spec_of(recorded: Mapping[str, Any], usual: Mapping[str, Any]) -> str:
    """Return as one text what ``to_spec`` gave; parameters of their usual value are left out."""
    name = str(recorded["name"])
    params = [f"{k}={v}" for k, v in recorded.get("params", {}).items() if v != usual.get(k)]
    return f"{name}:{','.join(params)}" if params else name


def hardware_of(
    reader: TraceReader, profile: str | None, overlap: str | None = None
) -> HardwareProfile:
    """Return the profile that is named, or the recorded one, with another overlap if one is."""
    hardware = _hardware_of(reader, profile)
    return hardware if overlap is None else replace(hardware, overlap=overlap)  # type: ignore[arg-type]


def _hardware_of(reader: TraceReader, profile: str | None) -> HardwareProfile:
    from specfit.cli.specs import profile_from

    if profile is not None:
        return profile_from(profile)
    if reader.metadata.hardware is None:
        raise InvalidInputError(
            "the trace names no hardware profile, so seconds cannot be simulated. "
            "Give --profile FILE.toml."
        )
    return reader.metadata.hardware


def print_tables(replayer: Replayer, runs: Sequence[Run]) -> None:
    """Print one table for each cache: figures down, policies across."""
    from specfit.report.measures import COUNTS, PREDICTIONS, number_text
    from specfit.report.runs import baseline_of
    from specfit.report.words import range_text
    from specfit.sim.metrics import num_reads

    for cache in dict.fromkeys(run.cache for run in runs):
        columns = [run for run in runs if run.cache == cache]
        rows = [[m.label, *(m.text(r.metrics) for r in columns)] for m in (*COUNTS, *PREDICTIONS)]
        rows.append(
            [
                f"tokens/s, {replayer.kind}",
                *(number_text(r.metrics.tokens_per_s, 1) for r in columns),
            ]
        )
        if replayer.prefetch != "none":
            rows.append(["copied ahead", *(f"{r.metrics.num_prefetched:,}" for r in columns)])
            wasted = (f"{r.metrics.wasted_bytes / 1e9:,.2f}" for r in columns)
            rows.append(["  for nothing, GB", *wasted])
        if replayer.host is not None:
            rows.append(["read from disk", *(f"{num_reads(r.results):,}" for r in columns)])
        baseline = baseline_of(runs, cache)
        if baseline is not None:
            gains = [run.speedup_over(baseline) for run in columns]
            estimates = (number_text(gain.estimate, 2) for gain in gains)
            rows.append([f"speed-up, {replayer.kind}", *estimates])
            rows.append(["  its 95 % interval", *map(range_text, gains)])
        print_table(
            ["", *(run.policy for run in columns)],
            rows,
            title=f"replay of {replayer.num_prompts} prompts, cache {cache}",
            note=f"Seconds are {replayer.seconds}.",
        )


def write_plot(replayer: Replayer, runs: Sequence[Run], path: Path) -> None:
    """Draw the simulated speed of every policy with every cache.

    Raises
    ------
    InvalidInputError
        There was no cycle, so there is no speed.
    """
    from specfit.report import style
    from specfit.report.runs import baseline_of
    from specfit.report.simulated import SimulatedBar, draw_simulated

    if not all(run.metrics.num_cycles for run in runs):
        raise InvalidInputError(
            "--plot shows speeds, and the texts of this trace end with the pass over the prompt, "
            "before any cycle. Record longer ones."
        )
    bars = []
    for run in runs:
        baseline = baseline_of(runs, run.cache)
        gain = None if baseline is None else run.speedup_over(baseline)
        bars.append(SimulatedBar(run.policy, run.cache, run.metrics.tokens_per_s, gain))
    caption = f"Simulated from profile '{replayer.hardware.name}'; {replayer.num_prompts} prompts"
    style.save(draw_simulated(bars, caption=caption), path.with_suffix(""))


def json_rows(replayer: Replayer, runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return one row a run, with its manifest."""
    from specfit.cli.manifest import manifest
    from specfit.cli.specs import policy_from
    from specfit.report.measures import COUNTS, PREDICTIONS, json_values
    from specfit.report.runs import baseline_of
    from specfit.sim.metrics import figure_or_none, num_reads

    rows = []
    for run in runs:
        baseline = baseline_of(runs, run.cache)
        speedup = None if baseline is None else run.speedup_over(baseline)
        rows.append(
            {
                "policy": run.policy,
                "cache": run.cache,
                "num_prompts": len(run.results),
                **json_values((*COUNTS, *PREDICTIONS), run.metrics),
                "overlap": replayer.hardware.overlap,
                "prefetch": replayer.prefetch,
                "host": replayer.host,
                "num_prefetched": run.metrics.num_prefetched,
                "wasted_bytes": run.metrics.wasted_bytes,
                "num_reads": num_reads(run.results),
                "seconds": replayer.seconds,
                f"{replayer.kind}_tokens_per_s": figure_or_none(run.metrics.tokens_per_s),
                f"{replayer.kind}_speedup": speedup
                and [figure_or_none(x) for x in (speedup.estimate, speedup.low, speedup.high)],
                **manifest(
                    policy_spec=policy_from(run.policy).to_spec(),
                    cost=replayer.cost.to_spec(),
                    predictor=replayer.inputs.predictor.to_spec(),
                    acceptance=replayer.inputs.acceptance.to_spec(),
                    profile=replayer.hardware.name,
                    trace=replayer.reader.fingerprint,
                ),
            }
        )
    return rows
