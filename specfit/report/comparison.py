"""Several policies on the same prompts, live and replayed, in one table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specfit.report.measures import (
    COUNTS,
    CYCLE_ERRORS,
    PREDICTIONS,
    error_text,
    json_values,
    number_text,
)
from specfit.report.runs import Run
from specfit.report.words import range_text
from specfit.sim.metrics import Interval, seconds_errors


@dataclass(frozen=True, eq=False)
class Contender:
    """One policy with one cache: what it did live, and what the replay of the trace says of it.

    Parameters
    ----------
    label : str
        Short name in tables and pictures.
    live, replayed : Run
        Measured and simulated.
    """

    label: str
    live: Run
    replayed: Run

    @cached_property
    def simulation_errors(self) -> NDArray[np.float64]:
        """Relative error of the simulated seconds of each cycle; empty if the cycles differ."""
        shapes = [[len(r.cycles) for r in run.results] for run in (self.live, self.replayed)]
        if shapes[0] != shapes[1]:
            return np.zeros(0)
        return seconds_errors(self.live.results, self.replayed.results)


@dataclass(frozen=True, eq=False)
class Comparison:
    """Contenders on the same prompts.

    Parameters
    ----------
    contenders : tuple of Contender
        In the order in which they are shown.
    baseline : Contender
        Plain decoding, one of them.
    """

    contenders: tuple[Contender, ...]
    baseline: Contender

    def speedup(self, contender: Contender) -> Interval:
        """Return the measured speed-up over plain decoding."""
        return contender.live.speedup_over(self.baseline.live)

    def header(self) -> list[str]:
        """Return the column names of the table: one column a contender."""
        return ["", *(c.label for c in self.contenders)]

    def rows(self) -> list[list[str]]:
        """Return the rows of the table: one figure a row."""
        rows = [["expert cache", *(c.live.cache for c in self.contenders)]]
        rows += [[m.label, *(m.text(c.live.metrics) for c in self.contenders)] for m in COUNTS]
        rows.append(["tokens/s, measured", *self._numbers("live")])
        rows.append(["tokens/s, simulated", *self._numbers("replayed")])
        gains = [self.speedup(contender) for contender in self.contenders]
        rows.append(["speed-up, measured", *(f"{gain.estimate:.2f}" for gain in gains)])
        rows.append(["  its 95 % interval", *map(range_text, gains)])
        rows += [[m.label, *(m.text(c.live.metrics) for c in self.contenders)] for m in PREDICTIONS]
        rows.append(["cycle time off, predicted", *map(_predicted_text, self.contenders)])
        rows.append(["cycle time off, simulated", *map(_simulated_text, self.contenders)])
        return rows

    def json_rows(self) -> list[dict[str, Any]]:
        """Return one object a contender."""
        rows = []
        for contender in self.contenders:
            gain = self.speedup(contender)
            rows.append(
                {
                    "policy": contender.live.policy,
                    "cache": contender.live.cache,
                    "num_prompts": len(contender.live.results),
                    **json_values((*COUNTS, *PREDICTIONS, *CYCLE_ERRORS), contender.live.metrics),
                    "measured_tokens_per_s": contender.live.metrics.tokens_per_s,
                    "simulated_tokens_per_s": contender.replayed.metrics.tokens_per_s,
                    "measured_speedup": [gain.estimate, gain.low, gain.high],
                }
            )
        return rows

    def _numbers(self, world: str) -> Sequence[str]:
        runs: list[Run] = [getattr(c, world) for c in self.contenders]
        return [number_text(run.metrics.tokens_per_s, 1) for run in runs]


def _predicted_text(contender: Contender) -> str:
    found = contender.live.metrics.calibration
    return error_text(found.cycle_error_median, found.cycle_error_p95)


def _simulated_text(contender: Contender) -> str:
    errors = contender.simulation_errors
    if not len(errors):
        return "cycles differ"
    return error_text(float(np.median(errors)), float(np.quantile(errors, 0.95)))
