"""Fits the synthetic model's routing to what was published: `python -m benchmarks.sim.fit_synth`.

Looks at the published targets alone and runs no policy. The largest miss, in tolerances, is made as
small as it gets on one set of texts of both tasks: a linear programme over the measures' slopes,
in steps that shrink when they do not help. What ships was found so, for several numbers of
directions and lengths of a topic, which it does not move.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace

import numpy as np
from joblib import Parallel, delayed
from numpy.typing import NDArray
from scipy.optimize import linprog

from specfit.core.errors import InvalidInputError
from specfit.sim.synth.backend import requests_of
from specfit.sim.synth.drafts import SynthDrafter
from specfit.sim.synth.fit import Line, routing_lines
from specfit.sim.synth.parameters import ROUTING, TASKS, RoutingParameters, Task
from specfit.sim.synth.texts import Text, route_text
from specfit.sim.synth.world import RoutingWorld

STEPS = {
    "global_share": 0.04,
    "drift_share": 0.04,
    "topic_share": 0.04,
    "drift_carry": 0.001,
    "token_share": 0.04,
    "first_token_share": 0.06,
    "prompt_turnover": 0.08,
    "measured_scale": 0.02,
    "other_scale": 0.02,
}
"""What is moved, and how far its slopes are trusted; `prompt_share` is what the others leave."""

UPPER = {
    "drift_carry": 0.9999,
    "prompt_turnover": 0.98,
    "measured_scale": 1.2,
    "other_scale": 1.2,
}
"""Of what may not reach 1, or may exceed it: a share does neither."""

LOWER = {"drift_carry": 0.98, "measured_scale": 0.9, "other_scale": 0.9}
"""Of what may not reach 0."""

SHARES = ("global_share", "drift_share", "topic_share")
"""What sums to 1 with `prompt_share`."""

Vector = NDArray[np.float64]


@dataclass(frozen=True)
class Point:
    """Values of what is moved, what the texts have with them, and how far off that is.

    Parameters
    ----------
    values : float64[n]
        In the order of `STEPS`.
    lines : tuple of Line
        The measures that have a target.
    misses : float64[m]
        Found less target, in tolerances, of each of them.
    """

    values: Vector
    lines: tuple[Line, ...]
    misses: Vector

    @property
    def worst(self) -> float:
        """The largest miss, in tolerances."""
        return float(np.abs(self.misses).max())


def parameters_of(values: Vector) -> RoutingParameters:
    """Return the shipped parameters with other values of what is moved, float64[n]."""
    moved = dict(zip(STEPS, values.tolist(), strict=True))
    return replace(ROUTING, prompt_share=1.0 - sum(moved[name] for name in SHARES), **moved)


def tokens_of(task: Task, seed: int, num_texts: int) -> list[tuple[tuple[int, ...], list[int]]]:
    """Return the prompts of a task and the texts that follow: they depend on no parameter here."""
    world, drafter = RoutingWorld(), SynthDrafter(task.first_acceptance)
    texts = []
    for request in requests_of(task, seed, num_texts, task.text_tokens):
        prompt = np.array(request.prompt, np.int64)
        parents = np.arange(len(prompt), dtype=np.int32)
        context = world.grow(world.start(world.topic(request.prompt)), parents, prompt)[-1:]
        tokens: list[int] = []
        while len(tokens) < task.text_tokens - 1:
            tokens.append(int(drafter.own_tokens(context.keys)[0]))
            context = world.grow(context, np.zeros(1, np.int32), np.array(tokens[-1:]))[1:]
        texts.append((request.prompt, tokens))
    return texts


def measured(values: Vector, tokens: list[list[tuple[tuple[int, ...], list[int]]]]) -> Point | None:
    """Return the point of some values, or None where the parts of a score leave no room."""
    world = RoutingWorld(parameters_of(values))
    try:
        texts: list[list[Text]] = [[route_text(world, *each) for each in task] for task in tokens]
    except InvalidInputError:
        return None
    lines = tuple(
        line for of in texts for line in routing_lines(of, world) if line.is_met is not None
    )
    misses = [(line.found - line.target) / line.tolerance for line in lines]
    return Point(values, lines, np.array(misses))


def slope(
    point: Point, nudge: Vector, tokens: list[list[tuple[tuple[int, ...], list[int]]]]
) -> Vector:
    """Return what a unit of the one value that `nudge` moves adds to each miss, float64[m].

    It is moved down, or up where the parts of a score then leave no room.

    Raises
    ------
    InvalidInputError
        They leave none either way.
    """
    for moved in (-nudge, nudge):
        near = measured(point.values + moved, tokens)
        if near is not None:
            change: Vector = (near.misses - point.misses) / moved.sum()
            return change
    name = list(STEPS)[int(np.flatnonzero(nudge)[0])]
    raise InvalidInputError(
        f"{name} must have room to be moved down or up by {nudge.sum():g}; it has none. Start from "
        f"other parameters, or with a smaller step."
    )


def stepped(point: Point, slopes: NDArray[np.float64], trust: float) -> Vector:
    """Return the values whose worst miss is least by the slopes, within `trust` steps."""
    steps = trust * np.array(list(STEPS.values()))
    low = np.array([LOWER.get(name, 0.0) for name in STEPS]) - point.values
    high = np.array([UPPER.get(name, 1.0) for name in STEPS]) - point.values
    bounds = [*zip(np.maximum(low, -steps), np.minimum(high, steps), strict=True), (0, None)]
    ones = np.ones((len(slopes), 1))
    is_share = np.array([name in SHARES for name in STEPS])
    rows = np.vstack(
        [np.hstack([slopes, -ones]), np.hstack([-slopes, -ones]), np.append(is_share, False)]
    )
    room = 0.999 - point.values[is_share].sum()
    limits = np.concatenate([-point.misses, point.misses, [room]])
    solved = linprog([*np.zeros(len(STEPS)), 1.0], rows, limits, bounds=bounds)
    moved: Vector = point.values + solved.x[:-1]
    return moved


def main() -> None:
    """Fit, and print the best parameters of each round and what is far off with them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--texts", type=int, default=25, help="texts of each task")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    tokens = [tokens_of(task, options.seed, options.texts) for task in TASKS]
    best = measured(np.array([getattr(ROUTING, name) for name in STEPS]), tokens)
    assert best is not None, "the shipped parameters leave room"
    trust, started = 1.0, time.monotonic()
    workers = Parallel(n_jobs=-1)
    for _ in range(options.rounds):
        nudges = np.diag(0.5 * np.array(list(STEPS.values())))
        slopes = np.stack(workers(delayed(slope)(best, nudge, tokens) for nudge in nudges), axis=1)
        tries = [stepped(best, slopes, trust * share) for share in (2.0, 1.0, 0.5, 0.25)]
        points = [p for p in workers(delayed(measured)(t, tokens) for t in tries) if p is not None]
        found = min([best, *points], key=lambda point: point.worst)
        trust *= 0.25 if found is best else 1.0
        best = found
        far = [
            f"{line.what.strip()} {line.found:.3f}"
            for line, miss in zip(best.lines, best.misses, strict=True)
            if abs(miss) > 0.8 * best.worst
        ]
        print(f"{time.monotonic() - started:.0f} s: {best.worst:.3f} tolerances off: {far}")
        print(parameters_of(best.values), flush=True)


if __name__ == "__main__":
    main()
