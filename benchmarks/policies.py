"""Regret of every policy in the simulator, over caches and links, each rival at its best.

``python -m benchmarks.policies`` (``make bench-policies``) writes traces of several kinds of text,
tunes every rival for each cell on one half of the texts, and replays the other half. A cell is a
share of resident experts and a bandwidth. Regret is how far a policy stays below the best lossless
one of the cell, which is known only afterwards. `specfit` has one setting for all cells. Every
policy pays for the processor time that its decisions were measured to take, predictions included;
a model of fewer layers is a slice of Qwen3-30B-A3B and pays a slice of it. All else is *simulated*,
from a cited profile; see `benchmarks/policy_worlds.py`.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.policy_grid import BLIND, GRIDS, OURS, REFERENCES, rival_of
from benchmarks.policy_replay import KNOWING, evaluate, reader_of, tokens_per_s
from benchmarks.policy_worlds import NUM_JUDGED, NUM_TUNED, WORLDS, World, prepare
from specfit.cli.manifest import manifest
from specfit.sim.metrics import regret
from specfit.sim.sweep import Cell, run_sweep

RESIDENT = ("15%", "25%", "50%", "75%", "90%")
GB_PER_S = [12.0, 25.0, 58.0]
MOST_REGRET = 0.02
MOST_LOSS = 0.01
LEAST_GAIN_SHARE = 0.9

Place = tuple[str, float]
"""Resident experts, bandwidth in bytes a second."""

Task = tuple[str, Place]
"""What is replayed: the spec of a policy, and where."""


@dataclass(frozen=True)
class Bench:
    """One world's replays.

    Parameters
    ----------
    world : World
        The texts.
    folder : Path
        Where traces and finished cells lie.
    jobs : int
        Processes.
    replay_s : list of float
        Gains the processor seconds of each replay.
    """

    world: World
    folder: Path
    jobs: int
    replay_s: list[float] = field(default_factory=list)

    def speeds(
        self, half: str, specs: Sequence[tuple[str, Place]]
    ) -> dict[tuple[str, Place], float]:
        """Return the tokens a second of each spec at each place, replayed where need be."""
        trace = str(self.world.trace(self.folder, half))
        fingerprint = reader_of(trace).fingerprint
        cells = {key: self._cell(trace, fingerprint, *key) for key in specs}
        rows = run_sweep(
            list(dict.fromkeys(cells.values())),
            evaluate,
            self.folder / self.world.name / f"{half}-results",
            context=manifest(source=source_digest()),
            num_workers=self.jobs,
        )
        self.replay_s.extend(row["replay_s"] for row in rows)
        by_cell = {(r["policy"], r["cache"], r["h2d_bandwidth_bytes_per_s"]): r for r in rows}
        return {
            key: tokens_per_s(
                by_cell[cell.policy, cell.cache, cell.h2d_bandwidth_bytes_per_s], key[1][1], trace
            )
            for key, cell in cells.items()
        }

    def _cell(self, trace: str, fingerprint: str, spec: str, place: Place) -> Cell:
        resident, bandwidth = place
        link = None if rival_of(spec) in BLIND else bandwidth
        return Cell(trace, fingerprint, spec, f"lru:{resident}", link)


@dataclass(frozen=True)
class Outcomes:
    """Simulated tokens a second on the half to judge by.

    Parameters
    ----------
    places : sequence of Place
        The cells.
    speeds : dict
        Of every policy, rivals as tuned for the cell.
    chosen : dict
        The spec of each rival in each cell.
    references : dict
        Of what looks ahead of the target.
    """

    places: Sequence[Place]
    speeds: dict[str, dict[Place, float]]
    chosen: dict[str, dict[Place, str]]
    references: dict[str, dict[Place, float]]

    def best(self, place: Place) -> tuple[str, float]:
        """Return the fastest lossless policy of a cell, and its speed."""
        name = max(self.speeds, key=lambda policy: self.speeds[policy][place])
        return name, self.speeds[name][place]

    def regret(self, policy: str, place: Place) -> float:
        """Return the share of the best policy's speed that a policy lacks."""
        return regret(self.speeds[policy][place], self.best(place)[1])

    def gain(self, place: Place) -> float:
        """Return `specfit` over plain decoding, less 1."""
        return self.speeds[OURS][place] / self.speeds["autoregressive"][place] - 1.0

    def gain_share(self, place: Place) -> float:
        """Return the part of the gain with true experts that `specfit` reaches; NaN without one."""
        knowing = self.references[KNOWING][place] / self.speeds["autoregressive"][place] - 1.0
        return self.gain(place) / knowing if knowing > 0 else float("nan")


def run(bench: Bench, places: Sequence[Place]) -> Outcomes:
    """Tune every rival for each cell on one half, and replay the other."""
    rivals = [(s, p) for grid in GRIDS.values() for s in grid for p in places]
    tuning = bench.speeds("train", rivals)
    chosen = {
        name: {p: max(grid, key=lambda spec: tuning[spec, p]) for p in places}
        for name, grid in GRIDS.items()
    }
    needed = {(spec, p) for by_place in chosen.values() for p, spec in by_place.items()}
    others = (OURS, KNOWING, *REFERENCES)
    judged = bench.speeds("test", sorted(needed) + [(s, p) for s in others for p in places])
    speeds = {n: {p: judged[s, p] for p, s in by.items()} for n, by in chosen.items()}
    speeds[OURS] = {p: judged[OURS, p] for p in places}
    references = {s: {p: judged[s, p] for p in places} for s in (KNOWING, *REFERENCES)}
    return Outcomes(places, speeds, chosen, references)


def print_outcomes(name: str, found: Outcomes) -> None:
    """Print the regret table of a world, and what came of `specfit`."""
    places = found.places
    print(f"\n{name}: regret in % of the cell's best, simulated")
    print(f"{'resident':20s}" + "".join(f"{resident:>6s}" for resident, _ in places) + "   mean")
    print(f"{'GB/s':20s}" + "".join(f"{bandwidth / 1e9:6.0f}" for _, bandwidth in places))
    mean = {p: float(np.mean([found.regret(p, c) for c in places])) for p in found.speeds}
    for policy in sorted(mean, key=mean.__getitem__):
        cells = "".join(f"{100 * found.regret(policy, place):6.1f}" for place in places)
        print(f"{policy:20s}{cells} {100 * mean[policy]:6.1f}")
    print("references, which know the target's answers: their speed over the best policy's, in %")
    for label, speeds in found.references.items():
        over = "".join(f"{100 * (speeds[p] / found.best(p)[1] - 1):6.1f}" for p in places)
        print(f"{label.partition(':')[0]:20s}{over}")
    print(f"{'best':20s}" + "".join(f"{found.best(p)[0][:5]:>6s}" for p in places))
    print(f"{'plain, tokens/s':20s}" + _cells(found.speeds["autoregressive"], places))
    print(f"{'specfit gain, %':20s}" + _cells({p: 100 * found.gain(p) for p in places}, places))
    shares = {p: 100 * found.gain_share(p) for p in places}
    print(f"{'of the knowing, %':20s}" + _cells(shares, places))


def _cells(values: dict[Place, float], places: Sequence[Place]) -> str:
    return "".join(f"{values[place]:6.1f}" for place in places)


def missed_bars(name: str, found: Outcomes) -> list[str]:
    """Return one line for every cell in which `specfit` misses a bar."""
    missed = []
    for place in found.places:
        where = f"{name}, {place[0]} resident, {place[1] / 1e9:.0f} GB/s"
        lack, gain = found.regret(OURS, place), found.gain(place)
        if lack > MOST_REGRET:
            missed.append(f"{where}: {100 * lack:.1f} % below {found.best(place)[0]}")
        if gain < -MOST_LOSS:
            missed.append(f"{where}: {-100 * gain:.1f} % slower than plain decoding")
        if found.gain_share(place) < LEAST_GAIN_SHARE:
            share = 100 * found.gain_share(place)
            missed.append(f"{where}: {share:.0f} % of the gain with true experts")
    return missed


def report_of(found: Outcomes) -> dict[str, Any]:
    """Return the outcomes as JSON knows them."""

    def flat(table: dict[str, dict[Place, Any]]) -> dict[str, list[Any]]:
        return {
            name: [by_place[place] for place in found.places] for name, by_place in table.items()
        }

    return {
        "places": [list(place) for place in found.places],
        "simulated_tokens_per_s": flat(found.speeds),
        "references": flat(found.references),
        "chosen": flat(found.chosen),
    }


def source_digest() -> str:
    """Return a digest of the package's code: results of other code are not taken up again."""
    digest = hashlib.sha256()
    root = Path(__file__).parents[1]
    for path in sorted(
        [*(root / "specfit").rglob("*.py"), *(root / "benchmarks").glob("polic*.py")]
    ):
        digest.update(str(path.relative_to(root)).encode() + path.read_bytes())
    return digest.hexdigest()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; return 1 if a bar is missed."""
    options = _options(arguments)
    started = time.monotonic()
    places = [(r, b * 1e9) for r in options.resident for b in options.bandwidths]
    missed, worlds, replay_s = [], {}, 0.0
    chosen = [world for world in WORLDS if world.name in options.worlds]
    num_texts = {"train": options.num_prompts, "test": options.num_judged}
    prepare(chosen, options.folder, num_texts, options.tokens)
    for world in chosen:
        bench = Bench(world, options.folder, options.jobs)
        found = run(bench, places)
        replay_s += sum(bench.replay_s)
        print_outcomes(world.name, found)
        missed += missed_bars(world.name, found)
        num_judged = len(list(reader_of(str(world.trace(options.folder, "test"))).prompts()))
        worlds[world.name] = {"num_judged": num_judged, **report_of(found)}
    report = {
        "what": "replays in simulated time",
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "seconds": round(time.monotonic() - started),
        "replay_processor_s": round(replay_s),
        "num_prompts": options.num_prompts,
        "new_tokens": options.tokens,
        "manifest": manifest(),
        "missed": missed,
        "worlds": worlds,
    }
    if options.out:
        options.out.write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    print()
    for line in missed:
        print(f"missed: {line}")
    print(f"{len(missed)} bars missed; {report['seconds']} s")
    return 1 if missed else 0


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    names = [world.name for world in WORLDS]
    parser.add_argument("--worlds", nargs="+", default=names, choices=names)
    parser.add_argument("--resident", nargs="+", default=list(RESIDENT))
    parser.add_argument("--bandwidths", nargs="+", type=float, default=GB_PER_S)
    parser.add_argument("--num-prompts", type=int, default=NUM_TUNED, help="tuned on")
    parser.add_argument("--num-judged", type=int, default=NUM_JUDGED, help="prompts judged by")
    parser.add_argument("--tokens", type=int, default=64, help="new tokens a prompt")
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 is one a core")
    parser.add_argument("--folder", type=Path, default=Path("build/policies"))
    parser.add_argument("--out", type=Path, help="JSON file of the results")
    return parser.parse_args(arguments)


if __name__ == "__main__":
    raise SystemExit(main())
