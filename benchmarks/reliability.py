"""Prints how far predicted probabilities are from what happened, group by group."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from specfit.core.reliability import reliability


def print_groups(
    title: str,
    names: list[str],
    groups: NDArray[np.integer],
    before: NDArray[np.floating],
    after: NDArray[np.floating],
    happened: NDArray[np.bool_],
) -> dict[str, dict[str, dict[str, float]]]:
    """Print one line a group, before and after calibration; return what was printed.

    Parameters
    ----------
    names : list of str
        Of groups 0, 1, ..
    groups : int[n]
        Group of each prediction; negative ones are left out.
    """
    print(
        f"\n{title:34s}{'n':>9s}{'realised':>10s}{'before':>9s}{'ECE':>8s}{'Brier':>8s}"
        f"{'after':>9s}{'ECE':>8s}{'Brier':>8s}"
    )
    found: dict[str, dict[str, dict[str, float]]] = {}
    for group, name in enumerate(names):
        inside = groups == group
        if not inside.any():
            continue
        old, new = (reliability(p[inside], happened[inside]) for p in (before, after))
        print(
            f"  {name:32s}{new.count:9d}{new.realised:10.4f}{old.predicted:9.4f}{old.ece:8.4f}"
            f"{old.brier:8.4f}{new.predicted:9.4f}{new.ece:8.4f}{new.brier:8.4f}"
        )
        found[name] = {"before": vars(old), "after": vars(new)}
    return found
