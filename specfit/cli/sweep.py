"""`specfit sweep`: every combination of traces, policies, caches and links, on all cores."""

from __future__ import annotations

import hashlib
import json
import re
import shlex
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache as cached
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

import specfit
from specfit.cli import options
from specfit.cli.console import print_json, print_note, print_table, progress
from specfit.cli.option_groups import with_options
from specfit.cli.replay_options import ReplayOptions
from specfit.core.errors import InvalidInputError

if TYPE_CHECKING:
    from specfit.cli.inputs import Inputs
    from specfit.cli.replay import Replayer
    from specfit.core.profile import HardwareProfile
    from specfit.sim.results import Place, Results
    from specfit.sim.sweep import Cell, Row
    from specfit.sim.trace import TraceReader

Traces = Annotated[list[Path], typer.Argument(help="Folders that `specfit record` wrote.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of the results; it is resumed.")]
Sizes = Annotated[
    list[str],
    typer.Option("--size", help="Of every --cache, which is then a rule alone: 25%, 16 or 8GiB."),
]
Bandwidths = Annotated[
    list[str],
    typer.Option("--bandwidth", "-b", help="Of the link, 25GB/s; by default the profile's."),
]
Keys = Annotated[list[int], typer.Option("--seed", help="Key of policies that draw at random.")]
Jobs = Annotated[int, typer.Option("--jobs", "-j", help="Processes; -1 is one a core.")]
Engine = Annotated[
    str, typer.Option("--engine", help="local, or a cluster's: dask://HOST:PORT or ray.")
]

FOLDER = re.compile(r"(?<=folder=)[^,]+")
"""The folder in the spec of a fitted input."""


@with_options
def sweep(
    *,
    traces: Traces,
    out: Out,
    policy: options.Policies = ["autoregressive", "eagle3", "specfit"],  # noqa: B006 - typer copies
    cache: options.Caches = [],  # noqa: B006 - typer copies
    size: Sizes = [],  # noqa: B006 - typer copies
    bandwidth: Bandwidths = [],  # noqa: B006 - typer copies
    seed: Keys = [0],  # noqa: B006 - typer copies
    cost: options.Cost = "profile",
    replay_options: ReplayOptions,
    prefetch: options.Prefetch = "none",
    host: options.HostOf = "none",
    jobs: Jobs = -1,
    engine: Engine = "local",
    as_json: options.Json = False,
) -> None:
    """Replay every combination of what is given, in simulated time; finished ones are kept.

    Example: specfit sweep trace/ -o results/ -c lru -c sieve --size 25% --size 50% -b 12GB/s
    """
    from specfit.core.units import bytes_per_s_of
    from specfit.sim.sweep import product, run_sweep, with_sizes
    from specfit.sim.trace import TraceReader

    fingerprints = {str(path): TraceReader(path).fingerprint for path in traces}
    links: list[float | None] = [bytes_per_s_of(text) for text in bandwidth]
    caches = with_sizes(cache or (["lru"] if size else ["lru:25%"]), size)
    cells = product(fingerprints, policy, caches, links or [None], seed)
    evaluate = Evaluate(cost, replay_options, prefetch, host)
    evaluate.check(cells)
    with progress() as bars:
        task = bars.add_task("sweeping", total=len(cells))
        spoken = Spoken(len(cells))

        def start(num_done: int) -> None:
            bars.update(task, completed=num_done)
            spoken.start(num_done)

        def advance(_: Cell) -> None:
            bars.advance(task)
            spoken.advance()

        try:
            rows = run_sweep(
                cells,
                evaluate,
                out,
                context=evaluate.context(list(fingerprints)),
                num_workers=jobs,
                where=engine,
                on_start=start,
                on_cell=advance,
            )
        except KeyboardInterrupt:
            done = f"{spoken.done} of {spoken.total} cells are kept in {out}"
            kept = f"{done}; the same command goes on from there"
            raise KeyboardInterrupt(kept if spoken.done else "no cell was finished") from None
    print_note(f"{len(rows)} rows in {out / 'results.parquet'}. Next: specfit report {out}")
    if as_json:
        print_json(rows)
    else:
        print_tables(rows)


@dataclass
class Spoken:
    """Says every tenth of the cells how long the rest takes, where stderr is no terminal."""

    total: int
    clock: Callable[[], float] = time.monotonic
    is_quiet: bool = field(default_factory=lambda: sys.stderr.isatty())
    done: int = 0
    first: int = 0
    started_s: float = 0.0

    def start(self, num_done: int) -> None:
        """Take note of the cells that are there already."""
        self.done = self.first = num_done
        self.started_s = self.clock()
        if num_done:
            print_note(f"{num_done} of {self.total} cells are there already.")

    def advance(self) -> None:
        """Take note of a finished cell."""
        self.done += 1
        tenths = [10 * count // self.total for count in (self.done - 1, self.done)]
        if self.is_quiet or tenths[0] == tenths[1] or self.done == self.total:
            return
        each_s = (self.clock() - self.started_s) / (self.done - self.first)
        left_s = each_s * (self.total - self.done)
        print_note(f"{self.done} of {self.total} cells, about {left_s:.0f} s left")


@dataclass(frozen=True)
class Evaluate:
    """Replays one cell; pickled to the workers, so it holds texts only.

    Paths are relative to `root`, since a worker may run in another folder.
    """

    cost: str
    options: ReplayOptions
    prefetch: str = "none"
    host: str = "none"
    root: str = field(default_factory=lambda: str(Path.cwd()))
    version: str = specfit.__version__

    def __call__(self, cell: Cell) -> Row:
        """Return the row of a cell.

        Raises
        ------
        InvalidInputError
            This worker has another version of specfit than the program that started the sweep.
        """
        from specfit.core.cache import make_cache
        from specfit.core.policy import policies
        from specfit.sim.row import row_of

        if specfit.__version__ != self.version:
            raise InvalidInputError(
                f"a worker has specfit {specfit.__version__}; this is {self.version}. "
                f"Install one version everywhere."
            )
        replayer = self._replayer(cell)
        metadata = replayer.reader.metadata
        policy = self._at_root(cell.policy)
        policy_class = policies.get(policies.parse(policy)[0])
        run = replayer.run(policy, cell.cache, (), lambda: None)
        hardware = replayer.hardware
        return {
            **row_of(run.results, make_cache(cell.cache, metadata.geometry), metadata.geometry),
            "num_near_ties": len({(t.prompt, t.position) for t in replayer.near_ties}),
            "policy_is_reference": policy_class.is_reference,
            "seconds": "simulated",
            "origin": metadata.origin,
            "trace_model": metadata.model,
            "profile": hardware.name,
            "profile_kind": hardware.kind,
            "profile_values": json.dumps(asdict(hardware)),
            "host": replayer.host,
            "link_bytes_per_s": hardware.h2d_bandwidth_bytes_per_s,
            "repeat": self.command(cell),
        }

    def command(self, cell: Cell) -> str:
        """Return the command that makes the cell's row again."""
        link = cell.h2d_bandwidth_bytes_per_s
        words = ["specfit", "sweep", cell.trace, "--out", "again", "--policy", cell.policy]
        words += ["--cache", cell.cache, "--seed", str(cell.policy_key), "--cost", self.cost]
        words += [] if link is None else ["--bandwidth", f"{link / 1e9!r}GB/s"]
        for name, given in asdict(self.options).items():
            words += [] if given is None else [f"--{name.replace('_', '-')}", str(given)]
        words += [] if self.prefetch == "none" else ["--prefetch", self.prefetch]
        words += [] if self.host == "none" else ["--host", self.host]
        return shlex.join(words)

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

    def context(self, traces: Sequence[str]) -> dict[str, Any]:
        """Return what decides every row beside its cell."""
        from specfit.cli.manifest import manifest

        options, profile = self.options, self.options.profile
        given = None if profile is None else json.dumps(asdict(self._profile(profile)))
        inputs = {self._inputs_digest(trace) for trace in traces}
        return manifest(
            cost=self.cost,
            given_profile=given,
            model=options.model or "the trace's",
            max_prompts=options.max_prompts,
            predictor=options.predictor or "the model's",
            acceptance=options.acceptance or "the model's",
            overlap=options.overlap or "the profile's",
            prefetch=self.prefetch,
            host_option=self.host,
            inputs_sha256=hashlib.sha256("".join(sorted(inputs)).encode()).hexdigest(),
        )

    def _replayer(self, cell: Cell) -> Replayer:
        from specfit.cli.replay import Replayer, hardware_of
        from specfit.cli.specs import cost_from, host_from

        trace = self._path(cell.trace)
        reader = reader_once(trace, cell.trace_fingerprint)
        profile = self.options.profile and self._path(self.options.profile)
        hardware = hardware_of(reader, profile, self.options.overlap)
        if cell.h2d_bandwidth_bytes_per_s is not None:
            hardware = replace(hardware, h2d_bandwidth_bytes_per_s=cell.h2d_bandwidth_bytes_per_s)
        inputs = inputs_once(
            trace, cell.trace_fingerprint, self._model(), *map(self._input, self._inputs)
        )
        cost = cost_from(self._at_root(self.cost), hardware)
        return Replayer(
            reader,
            hardware,
            cost,
            inputs,
            self.options.max_prompts,
            policy_key=cell.policy_key,
            prefetch=self.prefetch,
            host=host_from(self.host, reader.metadata),
        )

    def _profile(self, profile: str) -> HardwareProfile:
        from specfit.cli.specs import profile_from

        return profile_from(self._path(profile))

    @property
    def _inputs(self) -> tuple[str | None, str | None]:
        return self.options.predictor, self.options.acceptance

    def _input(self, spec: str | None) -> str | None:
        """Return the spec of an input with the paths in it below `root`."""
        if spec is None:
            return None
        return FOLDER.sub(lambda match: self._path(match[0]), self._at_root(spec))

    def _model(self) -> str | None:
        return None if self.options.model is None else self._path(self.options.model)

    def _inputs_digest(self, trace: str) -> str:
        from specfit.cli.inputs import digest_of_inputs
        from specfit.sim.trace import TraceReader

        metadata = TraceReader(Path(self._path(trace))).metadata
        given = [folder for spec in self._inputs for folder in FOLDER.findall(spec or "")]
        return digest_of_inputs(metadata, self._model(), [Path(self._path(f)) for f in given])

    def _path(self, text: str) -> str:
        """Return a path below `root`; what is none, like the name of a profile, as it is."""
        path = Path(self.root, text)
        return str(path) if path.exists() else text

    def _at_root(self, spec: str) -> str:
        """Return the spec with the path of a class in a file below `root`."""
        path, found, rest = spec.partition(".py:")
        return f"{Path(self.root, path)}{found}{rest}" if found else spec


@cached
def reader_once(trace: str, fingerprint: str) -> TraceReader:
    """Return the reader of a trace; its parts are verified once a process."""
    from specfit.sim.trace import TraceReader

    reader = TraceReader(Path(trace))
    if reader.fingerprint != fingerprint:
        raise InvalidInputError(
            f"{trace} must be the trace that the sweep was started with; a worker finds another "
            f"one there. Give the workers the same files."
        )
    return reader


@cached
def inputs_once(
    trace: str, fingerprint: str, model: str | None, predictor: str | None, acceptance: str | None
) -> Inputs:
    """Return the fitted inputs of a trace; read, and complained of, once a process."""
    from specfit.cli.input_specs import chosen_inputs

    metadata = reader_once(trace, fingerprint).metadata
    return chosen_inputs(metadata, model, predictor, acceptance)


def print_tables(rows: Sequence[Row]) -> None:
    """Print one table for each trace, link and key: policies down, caches across."""
    from specfit.sim.results import results_of

    def group_of(row: Row) -> tuple[Any, ...]:
        return row["trace"], row["h2d_bandwidth_bytes_per_s"], row["policy_key"]

    for group in dict.fromkeys(map(group_of, rows)):
        trace, bandwidth, key = group
        results = results_of([row for row in rows if group_of(row) == group])
        lines = [
            [policy, *(speed_text(results, place, policy) for place in results.places)]
            for policy in results.policies
        ]
        link = "the profile's link" if bandwidth is None else f"{bandwidth / 1e9:g} GB/s"
        print_table(
            ["", *(place.cache for place in results.places)],
            lines,
            title=f"{trace}, {link}, seed {key}",
            note="Simulated tokens a second, and speed-up over autoregressive.",
        )


def speed_text(results: Results, place: Place, policy: str) -> str:
    """Return a policy's simulated speed at a place, and its speed-up where plain decoding is."""
    ours, plain = results.find(place, policy), results.baseline(place, "autoregressive")
    assert ours is not None, "a sweep runs every policy at every place"
    speed = f"{ours.metrics.tokens_per_s:.1f}"
    return speed if plain is None else f"{speed} ({ours.speedup_over(plain).estimate:.2f}x)"
