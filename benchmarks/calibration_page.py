"""The calibration bars for `docs/explanation/how-good-the-predictions-are.md`."""

from __future__ import annotations

from typing import Any

from benchmarks.markdown import table

MOST_ECE = 0.02
"""Bar: expected calibration error of every group, held out."""

LEAST_COUNT = 200
"""Predictions under which a group's error is mostly chance."""

GROUPS = ("acceptance", "experts by layer", "experts by depth", "experts by residency")


HEADER = (
    "T",
    "groups",
    f"ECE at most {MOST_ECE:g}",
    "within chance",
    "worst",
    "chance alone",
    "predicted",
    "realised",
    "n",
    "distinct",
)


def block(report: dict[str, Any]) -> str:
    """Return one row a temperature and kind of group: how many pass, and the worst.

    Within chance is what 19 of 20 draws from the predictions themselves would stay below.
    """
    rows = []
    for temperature in (name for name in report if name.startswith("temperature")):
        for kind in GROUPS:
            groups = {
                name: group
                for name, group in report[temperature][kind].items()
                if group["after"]["count"] >= LEAST_COUNT
            }
            if groups:
                rows.append([temperature.removeprefix("temperature "), *_row(kind, groups)])
    return table(HEADER, rows)


def _row(kind: str, groups: dict[str, Any]) -> list[str]:
    errors = {name: float(group["after"]["ece"]) for name, group in groups.items()}
    worst = max(errors, key=errors.__getitem__)
    after, chance = groups[worst]["after"], groups[worst]["chance"]
    inside = sum(error <= MOST_ECE for error in errors.values())
    likely = sum(errors[name] <= group["chance"]["ece_95"] for name, group in groups.items())
    return [
        "acceptance by depth and rank" if kind == "acceptance" else kind,
        f"{inside} of {len(groups)}",
        f"{likely} of {len(groups)}",
        f"{after['ece']:.3f} ({worst})",
        f"{chance['ece']:.3f}, up to {chance['ece_95']:.3f}",
        f"{after['predicted']:.3f}",
        f"{after['realised']:.3f}",
        f"{after['count']:,}",
        f"{chance['outcomes']:,}",
    ]
