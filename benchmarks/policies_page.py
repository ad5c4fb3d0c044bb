"""The regret tables for `docs/explanation/regret.md`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from benchmarks.markdown import table
from benchmarks.policies import Outcomes, missed_bars
from benchmarks.policy_grid import OURS

_SHOWN = 8
"""Rivals that a world's table shows: the best on average."""


def block(report: dict[str, Any]) -> str:
    """Return a table a world: percent below the best policy of each cell, and the bars missed."""
    lines = [
        f"Tuned on at most {report['num_prompts']} texts, {report['new_tokens']} tokens each; "
        f"replays took "
        f"{report['replay_processor_s']} s of one core. Percent below the cell's best policy; the "
        f"last lines are `specfit` over plain decoding, and its share of the gain that the same "
        f"search has with true experts, if it has any. All *simulated*."
    ]
    missed: list[str] = []
    for name, world in report["worlds"].items():
        found = outcomes(world)
        missed += missed_bars(name, found)
        lines += [f"### {name}", f"Judged by {world['num_judged']} texts.", _regrets(found)]
    shown = "; ".join(missed) or "none"
    return "\n\n".join([*lines, "### Bars missed", f"{len(missed)}: {shown}."])


def outcomes(world: dict[str, Any]) -> Outcomes:
    """Return a world's outcomes as the results file holds them."""
    places = [(str(resident), float(bandwidth)) for resident, bandwidth in world["places"]]

    def by_place(values: dict[str, list[Any]]) -> dict[str, dict[tuple[str, float], Any]]:
        return {name: dict(zip(places, row, strict=True)) for name, row in values.items()}

    return Outcomes(
        places,
        by_place(world["simulated_tokens_per_s"]),
        by_place(world["chosen"]),
        by_place(world["references"]),
    )


def _regrets(found: Outcomes) -> str:
    places = found.places
    mean = {n: float(np.mean([found.regret(n, p) for p in places])) for n in found.speeds}
    first = sorted(mean, key=mean.__getitem__)[:_SHOWN]
    names = dict.fromkeys([OURS, *first, "autoregressive"])
    rows = [_row(f"`{n}`", [100 * found.regret(n, p) for p in places], mean[n]) for n in names]
    gains = [100 * found.gain(p) for p in places]
    shares = [100 * found.gain_share(p) for p in places]
    rows.append(_row("gain, %", gains, float(np.mean(gains)) / 100))
    rows.append(["of the knowing, %", *(f"{s:.0f}" if s == s else "-" for s in shares), ""])
    header = [f"{resident} {bandwidth / 1e9:.0f}" for resident, bandwidth in places]
    return table(["resident, GB/s", *header, "mean"], rows)


def _row(name: str, cells: Sequence[float], mean: float) -> list[str]:
    return [name, *(f"{cell:.1f}" for cell in cells), f"{100 * mean:.1f}"]
