"""`specfit sweep`: every combination of traces, policies, caches and links, on all cores."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from functools import cache as cached
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from specfit.cli import options
from specfit.cli.console import print_json, print_note, print_table, progress

if TYPE_CHECKING:
    from collections.abc import Sequence

    from specfit.cli.inputs import Inputs
    from specfit.cli.replay import Replayer
    from specfit.sim.sweep import Cell, Row

Traces = Annotated[list[Path], typer.Argument(help="Folders that `specfit record` wrote.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of the results; it is resumed.")]
Bandwidths = Annotated[
    list[str],
    typer.Option("--bandwidth", "-b", help="Of the link, 25GB/s; by default the profile's."),
]
Keys = Annotated[list[int], typer.Option("--seed", help="Key of policies that draw at random.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", help="Processes; -1 is one a core.")]
MaxPrompts = Annotated[
    int | None, typer.Option("--max-prompts", min=1, help="Replay only the first so many prompts.")
]
TablesOf = Annotated[
    str | None,
    typer.Option("--model", "-m", help="Model with the fitted tables; by default the trace's."),
]


def sweep(
    traces: Traces,
    out: Out,
    policy: options.Policies = ["autoregressive", "eagle3", "specfit"],  # noqa: B006 - typer copies
    cache: options.Caches = ["lru:25%"],  # noqa: B006 - typer copies
    bandwidth: Bandwidths = [],  # noqa: B006 - typer copies
    seed: Keys = [0],  # noqa: B006 - typer copies
    cost: options.Cost = "profile",
    profile: options.Profile = None,
    model: TablesOf = None,
    max_prompts: MaxPrompts = None,
    jobs: Jobs = -1,
    as_json: options.Json = False,
) -> None:
    """Replay every combination of what is given, in simulated time; finished ones are kept.

    Example: specfit sweep trace/ -o results/ -c lru:25% -c lru:50% -b 12GB/s -b 25GB/s
    """
    from specfit.cli.specs import bytes_per_s_from
    from specfit.sim.sweep import product, run_sweep
    from specfit.sim.trace import TraceReader

    fingerprints = {str(path): TraceReader(path).fingerprint for path in traces}
    links: list[float | None] = [bytes_per_s_from(text) for text in bandwidth]
    cells = product(fingerprints, policy, cache, links or [None], seed)
    evaluate = Evaluate(cost, profile, model, max_prompts)
    evaluate.check(cells)
    with progress() as bars:
        task = bars.add_task("sweeping", total=len(cells))
        rows = run_sweep(
            cells,
            evaluate,
            out,
            context=evaluate.context(),
            num_workers=jobs,
            on_cell=lambda _: bars.advance(task),
        )
    print_note(f"{len(rows)} rows in {out / 'results.parquet'}")
    if as_json:
        print_json(rows)
    else:
        print_tables(rows)


@dataclass(frozen=True)
class Evaluate:
    """Replays one cell; pickled to the workers, so it holds texts only."""

    cost: str
    profile: str | None
    model: str | None
    max_prompts: int | None

    def __call__(self, cell: Cell) -> Row:
        """Return the row of a cell."""
        from specfit.core.cache import make_cache
        from specfit.sim.belady import belady_floor
        from specfit.sim.sweep import row_of

        replayer = self._replayer(cell)
        geometry = replayer.reader.metadata.geometry
        run = replayer.run(cell.policy, cell.cache, (), lambda: None)
        cache = make_cache(cell.cache, geometry)
        floor = belady_floor(run.results, geometry, cache.capacity) if cache.keeps_experts else None
        return {**row_of(run.results, run.expert_bytes), "belady_misses": floor}

    def check(self, cells: Sequence[Cell]) -> None:
        """Raise for a spec that means nothing before any cell is run."""
        from specfit.cli.specs import policy_from
        from specfit.core.cache import make_cache

        for trace in dict.fromkeys(cell.trace for cell in cells):
            of_trace = [cell for cell in cells if cell.trace == trace]
            reader = self._replayer(of_trace[0]).reader
            for gap in reader.missing:
                print_note(f"warning: {trace}: {gap}")
            geometry = reader.metadata.geometry
            for cell in of_trace:
                policy_from(cell.policy)
                make_cache(cell.cache, geometry)

    def context(self) -> dict[str, Any]:
        """Return what decides every row beside its cell."""
        from specfit.cli.manifest import manifest
        from specfit.cli.specs import profile_from

        hardware = asdict(profile_from(self.profile)) if self.profile else {"name": "the trace's"}
        return manifest(
            cost=self.cost,
            profile=hardware["name"],
            profile_values=json.dumps(hardware),
            model=self.model or "the trace's",
            max_prompts=self.max_prompts,
        )

    def _replayer(self, cell: Cell) -> Replayer:
        from specfit.cli.replay import Replayer, hardware_of
        from specfit.cli.specs import cost_from
        from specfit.sim.trace import TraceReader

        reader = TraceReader(Path(cell.trace))
        hardware = hardware_of(reader, self.profile)
        if cell.h2d_bandwidth_bytes_per_s is not None:
            hardware = replace(hardware, h2d_bandwidth_bytes_per_s=cell.h2d_bandwidth_bytes_per_s)
        inputs = inputs_once(cell.trace, cell.trace_fingerprint, self.model)
        return Replayer(reader, hardware, cost_from(self.cost, hardware), inputs, self.max_prompts)


@cached
def inputs_once(trace: str, fingerprint: str, model: str | None) -> Inputs:
    """Return the fitted inputs of a trace; read, and complained of, once a process."""
    from specfit.cli.inputs import inputs_of_trace
    from specfit.sim.trace import TraceReader

    return inputs_of_trace(TraceReader(Path(trace)).metadata, model)


def print_tables(rows: Sequence[Row]) -> None:
    """Print one table for each trace, link and key: policies down, caches across."""
    from specfit.sim.sweep import speedup_of

    def group_of(row: Row) -> tuple[Any, ...]:
        return row["trace"], row["h2d_bandwidth_bytes_per_s"], row["policy_key"]

    for group in dict.fromkeys(map(group_of, rows)):
        trace, bandwidth, key = group
        of_group = [row for row in rows if group_of(row) == group]
        caches = list(dict.fromkeys(row["cache"] for row in of_group))
        lines = []
        for policy in dict.fromkeys(row["policy"] for row in of_group):
            of_policy = {row["cache"]: row for row in of_group if row["policy"] == policy}
            gains = [speedup_of(of_policy[cache], of_group) for cache in caches]
            cells = [
                f"{of_policy[cache]['simulated_tokens_per_s']:.1f}"
                + (f" ({gain.estimate:.2f}x)" if gain else "")
                for cache, gain in zip(caches, gains, strict=True)
            ]
            lines.append([policy, *cells])
        link = "the profile's link" if bandwidth is None else f"{bandwidth / 1e9:g} GB/s"
        print_table(
            ["", *caches],
            lines,
            title=f"{trace}, {link}, seed {key}",
            note="Simulated tokens a second, and speed-up over autoregressive.",
        )
