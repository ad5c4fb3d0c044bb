"""What the price of a second is worth over a run: replays of recorded texts, in simulated seconds.

``python -m benchmarks.price_study TRACE... [--json FILE]`` replays position traces under the exact
search with each price, salvage and discount, and prints how many times faster each is than the
price of the cycle without salvage and discount. Every cell decodes the same texts with the same
cache, so that all that differs is what is charged; the seconds are simulated.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.search_rows import manifest
from specfit.cli.input_specs import chosen_inputs
from specfit.cli.replay import hardware_of
from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeResult
from specfit.core.policy import Cycle, Outcome
from specfit.core.profile import HardwareProfile
from specfit.core.search import RunningRate, warm_up
from specfit.core.tree import DraftPlan
from specfit.policies.specfit import SpecFit
from specfit.sim.metrics import measure, paired_speedup
from specfit.sim.replay import replay
from specfit.sim.trace import TraceReader

CACHES = ("lru:25%", "lru:50%", "lru:75%", "lru:100%")
DISCOUNTS = (0.0, 0.25, 0.5, 0.8, 1.0)
PRICES: dict[str, dict[str, Any]] = {
    "cycle, salvage 0": {"salvage": 0.0, "spare_salvage": 0.0},
    **{f"cycle, salvage {s:g}": {"salvage": s} for s in (0.2, 0.4, 0.7)},
    **{f"running, {n} cycles": {"horizon": n, "longest_pause": 0} for n in (8, 32, 128)},
}
"""Settings of `Priced` by the name of the row; the first, without discount, is compared with."""


@dataclass
class Priced(SpecFit):
    """The exact search with a price to choose; for the study.

    Parameters
    ----------
    horizon : int, optional
        Cycles over which the achieved rate is measured, which is the price then; without it each
        cycle maximises its own rate. The seconds of past cycles are the predicted ones, since a
        policy sees no others; a cycle that rests predicts none, so there is no rest.
    """

    horizon: int | None = None
    _rate: RunningRate | None = field(default=None, init=False, repr=False, compare=False)

    def plan(self, cycle: Cycle) -> DraftPlan:
        price = None if self._rate is None else self._rate.price
        self.search.price = "cycle" if price is None else price
        return super().plan(cycle)

    def observe(self, outcome: Outcome) -> None:
        super().observe(outcome)
        prediction = outcome.selection.prediction
        if self._rate is not None and prediction is not None:
            self._rate.observe(len(outcome.committed), prediction.cycle_s)

    def reset(self) -> None:
        super().reset()
        self._rate = None if self.horizon is None else RunningRate(self.horizon)


@dataclass(frozen=True)
class StudyRow:
    """One price and discount with one cache, over all texts.

    Parameters
    ----------
    speedup, low, high : float
        Over the price of the cycle without salvage and discount, with a 95 % interval over texts.
    """

    cache: str
    price: str
    discount: float
    tokens_per_s: float
    committed_per_cycle: float
    speedup: float
    low: float
    high: float


def study(traces: Sequence[TraceReader], profile: HardwareProfile) -> Iterator[StudyRow]:
    """Yield the rows, cache by cache."""
    for cache in CACHES:
        base: list[DecodeResult] = []
        for price, settings in PRICES.items():
            for discount in DISCOUNTS:
                policy = Priced(discount=discount, **settings)
                results = [r for t in traces for r in replayed(t, cache, policy, profile)]
                base = base or results
                yield row_of(cache, price, discount, results, base, traces[0])


def replayed(
    trace: TraceReader, cache: str, policy: Priced, profile: HardwareProfile
) -> Iterator[DecodeResult]:
    """Replay one trace in one cell."""
    inputs = chosen_inputs(trace.metadata, None, None, None)
    return replay(
        trace,
        policy,
        make_cache(cache, trace.metadata.geometry),
        profile,
        cost=ProfileCost(profile),
        predictor=inputs.predictor,
        acceptance=inputs.acceptance,
    )


def row_of(
    cache: str,
    price: str,
    discount: float,
    results: list[DecodeResult],
    base: list[DecodeResult],
    trace: TraceReader,
) -> StudyRow:
    """Sum up a cell."""
    metrics = measure(results, trace.metadata.geometry.expert_bytes)
    gain = paired_speedup(results, base)
    return StudyRow(
        cache,
        price,
        discount,
        metrics.tokens_per_s,
        metrics.committed_per_cycle,
        gain.estimate,
        gain.low,
        gain.high,
    )


def tables(rows: Sequence[StudyRow]) -> str:
    """Return one Markdown table a cache, and one of the geometric means over caches."""
    head = "| price | " + " | ".join(f"discount {d:g}" for d in DISCOUNTS) + " |"
    rule = "|---" * (len(DISCOUNTS) + 1) + "|"
    parts = []
    for cache in (*CACHES, "geometric mean of the caches"):
        of_cache = [r for r in rows if cache in (r.cache, "geometric mean of the caches")]
        lines = [f"{cache}:", "", head, rule]
        for price in dict.fromkeys(r.price for r in rows):
            cells = [f"{mean_speedup(of_cache, price, d):.3f}" for d in DISCOUNTS]
            lines.append(f"| {price} | " + " | ".join(cells) + " |")
        parts.append("\n".join(lines))
    return "\n\n".join(parts)


def mean_speedup(rows: Sequence[StudyRow], price: str, discount: float) -> float:
    """Return the geometric mean, over the caches of these rows, of one price and discount."""
    found = [r.speedup for r in rows if r.price == price and r.discount == discount]
    return float(np.exp(np.mean(np.log(found))))


def described(
    traces: Sequence[TraceReader], profile: HardwareProfile, rows: Sequence[StudyRow]
) -> dict[str, Any]:
    """Return the result as it is written."""
    return {
        "manifest": manifest()
        | {
            "seconds": "simulated",
            "model": traces[0].metadata.model,
            "prompts": sum(trace.num_prompts or 0 for trace in traces),
            "temperature": [trace.metadata.sampling.temperature for trace in traces],
            "profile": asdict(profile),
        },
        "rows": [asdict(row) for row in rows],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Replay all cells and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("traces", type=Path, nargs="+", help="position traces")
    parser.add_argument("--profile", help="TOML file or name; by default the first trace's")
    parser.add_argument("--json", type=Path, help="write the manifest and the rows here")
    options = parser.parse_args(arguments)
    warm_up()
    traces = [TraceReader(folder) for folder in options.traces]
    profile = hardware_of(traces[0], options.profile)
    rows = []
    for row in study(traces, profile):
        rows.append(row)
        print(
            f"{row.cache:<9} {row.price:<19} discount {row.discount:<4g} "
            f"{row.tokens_per_s:7.1f} tokens/s (simulated) {row.speedup:.3f} "
            f"[{row.low:.3f}, {row.high:.3f}] times",
            file=sys.stderr,
        )
    print(tables(rows))
    if options.json:
        text = json.dumps(described(traces, profile, rows), indent=1) + "\n"
        options.json.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
