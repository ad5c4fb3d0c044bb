"""The calibration bars for `docs/explanation/how-good-the-predictions-are.md`."""

from __future__ import annotations

from typing import Any

from benchmarks.markdown import table

MOST_ECE = 0.02
"""Bar: expected calibration error of every group, held out."""

LEAST_COUNT = 200
"""Predictions under which a group's error is mostly chance."""

GROUPS = ("acceptance", "experts by layer", "experts by depth", "experts by residency")


def block(report: dict[str, Any]) -> str:
    """Return one row a temperature and kind of group: how many pass the bar, and the worst."""
    rows = []
    for temperature in (name for name in report if name.startswith("temperature")):
        for kind in GROUPS:
            errors = {
                name: sides["after"]
                for name, sides in report[temperature][kind].items()
                if sides["after"]["count"] >= LEAST_COUNT
            }
            if not errors:
                continue
            worst = max(errors, key=lambda name: float(errors[name]["ece"]))
            inside = sum(side["ece"] <= MOST_ECE for side in errors.values())
            side = errors[worst]
            rows.append(
                [
                    temperature.removeprefix("temperature "),
                    "acceptance by depth and rank" if kind == "acceptance" else kind,
                    f"{inside} of {len(errors)}",
                    f"{side['ece']:.3f} ({worst})",
                    f"{side['predicted']:.3f}",
                    f"{side['realised']:.3f}",
                    f"{side['count']:,}",
                ]
            )
    header = ["T", "groups", f"ECE at most {MOST_ECE:g}", "worst", "predicted", "realised", "n"]
    return table(header, rows)
