"""The speed of replaying, for `benchmarks/README.md`."""

from __future__ import annotations

from typing import Any


def block(report: dict[str, Any]) -> str:
    """Return the median of each policy's runs, beside what it must reach."""
    speeds = [
        f"{row['median']:,.0f} with `{row['policy']}` (at least {row['bar']:,})"
        for row in report["rows"]
    ]
    return (
        f"Replayed cycles a second of processor time, commit {report['commit']}: "
        f"{', '.join(speeds)}."
    )
