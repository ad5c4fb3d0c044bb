"""The table of causes for `docs/explanation/regret.md`."""

from __future__ import annotations

from typing import Any

from benchmarks.markdown import table


def block(reports: list[dict[str, Any]]) -> str:
    """Return one row a change: its mean speed over plain decoding in each world."""
    first = reports[0]
    means = [{row["change"]: row["mean"] for row in report["rows"]} for report in reports]
    rows = [[name, *(f"{100 * mean[name]:.1f}" for mean in means)] for name in means[0]]
    places = ", ".join(f"{resident} at {b / 1e9:.0f}" for resident, b in first["places"])
    return "\n\n".join(
        [
            f"Percent of plain decoding's speed, *simulated*, geometric mean over {places} GB/s; "
            f"{first['num_prompts']} texts of {first['new_tokens']} tokens:",
            table(["changed", *(report["world"] for report in reports)], rows),
        ]
    )
