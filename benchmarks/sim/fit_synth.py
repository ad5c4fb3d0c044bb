"""Searches the synthetic model's routing parameters: `python -m benchmarks.sim.fit_synth`.

Looks at the published targets alone and runs no policy. Starts from the shipped parameters, changes
three at a time, and prints each set that comes nearer. What ships was chosen from such a search and
from tries by hand between its results.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import asdict, replace

import numpy as np

from specfit.sim.synth import measures
from specfit.sim.synth.parameters import ROUTING, RoutingParameters
from specfit.sim.synth.texts import draw_text
from specfit.sim.synth.world import RoutingWorld

SHARES = ("global_share", "prompt_share", "drift_share", "topic_share")
STEPS = {
    **dict.fromkeys(SHARES, 0.05),
    "drift_carry": 0.003,
    "topic_carry": 0.07,
    "token_share": 0.05,
    "prompt_turnover": 0.1,
    "num_drifts": 4,
    "num_topics": 2,
}
TARGETS = {
    **{f"lru {slots}": (rate, 0.02) for slots, rate in ((8, 0.424), (16, 0.647), (32, 0.81))},
    "lru 64": (0.918, 0.02),
    **{f"union {n}": (size, 0.1 * size) for n, size in ((4, 22.0), (8, 36.0), (16, 56.0))},
    "overlap in the prompt": (0.365, 0.0365),
    "frequency 1": (0.45, 0.045),
    "frequency 8": (0.45, 0.045),
    "token table": (0.354, 0.0354),
    "ridge 1": (0.55, 0.055),
    "ridge 4": (0.37, 0.037),
}
"""What was published, and how far off is near enough."""


def found(parameters: RoutingParameters, num_texts: int, num_known: int) -> dict[str, float]:
    """Return each measure of some texts."""
    world = RoutingWorld(parameters)
    rng = np.random.default_rng(1)
    texts = [draw_text(world, rng, 64, 129) for _ in range(num_texts)]
    known = [draw_text(world, rng, 4, 6) for _ in range(num_known)]
    ridge = measures.ridge_precision(known, texts, (1, 4))
    table = measures.token_table_precision(known, texts, world.geometry.vocab_size)
    return {
        **{f"lru {s}": measures.lru_hit_rate(texts, world.geometry, s) for s in (8, 16, 32, 64)},
        **{f"union {n}": measures.union_size(texts, n) for n in (4, 8, 16)},
        "overlap in the prompt": float(measures.overlap_by_layer(texts, in_prompt=True).mean()),
        **{f"frequency {h}": measures.decayed_frequency_precision(texts, h) for h in (1, 8)},
        "token table": float(table.mean()),
        "ridge 1": ridge[0],
        "ridge 4": ridge[1],
    }


def loss_of(values: dict[str, float]) -> float:
    """Return how far the measures are from the targets: what is outside half a tolerance counts."""
    off = [abs(values[name] - target) / tolerance for name, (target, tolerance) in TARGETS.items()]
    return sum(max(0.0, x - 0.5) ** 2 + 0.05 * x**2 for x in off)


def changed(parameters: RoutingParameters, rng: np.random.Generator) -> RoutingParameters:
    """Return the parameters with three of them moved."""
    values = asdict(parameters)
    for name in rng.choice(list(STEPS), size=3, replace=False).tolist():
        if name.startswith("num"):
            values[name] = max(2, values[name] + int(rng.integers(-STEPS[name], STEPS[name] + 1)))
        else:
            values[name] = min(max(values[name] + rng.normal() * STEPS[name], 0.01), 0.999)
    total = sum(values[name] for name in SHARES)
    values |= {name: values[name] / total for name in SHARES}
    return replace(parameters, **values)


def main() -> None:
    """Search for a while."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--texts", type=int, default=5)
    parser.add_argument("--known", type=int, default=900)
    options = parser.parse_args()
    rng = np.random.default_rng(0)
    best, lowest = ROUTING, np.inf
    end = time.monotonic() + options.seconds
    candidate = best
    while True:
        values = found(candidate, options.texts, options.known)
        loss = loss_of(values)
        if loss < lowest:
            best, lowest = candidate, loss
            print(f"{loss:.3f}", {k: round(v, 3) for k, v in values.items()}, best, flush=True)
        if time.monotonic() > end:
            return
        candidate = changed(best, rng)


if __name__ == "__main__":
    main()
