"""The disk benchmark's table for `docs/how-to/run-qwen3-30b-a3b.md`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.markdown import table

KINDS = {"autoregressive": "plain", "specfit": "`specfit`"}
OURS, TUNED = "`specfit`", "EAGLE-3, tuned"
"""Policies as the page names them; the tree is that of its run."""

Rows = Sequence[dict[str, Any]]


def block(report: dict[str, Any]) -> str:
    """Return what was run, the speeds by cache, and how `specfit` stands to the tuned tree."""
    rows = report["rows"]
    gibs = sorted({row["cache_gib_of_48_layers"] for row in rows})
    header = ["task", "policy"]
    for gib in gibs:
        header += [f"{gib:g} GiB: tokens/s", "MB a token", "error"]
    kinds = dict.fromkeys((row["task"], _kind(row["policy"])) for row in rows)
    lines = []
    for task, kind in kinds:
        line = [task, kind]
        for gib in gibs:
            line += _cells(_found(rows, task, gib, kind))
        lines.append(line)
    return "\n\n".join([_setting(report), table(header, lines), _over_tuned(rows, gibs)])


def _setting(report: dict[str, Any]) -> str:
    manifest = report["manifest"]
    return (
        f"`benchmarks/results/ssd.json`, commit {manifest['commit']}: **{report['layers']} of the "
        f"48 layers**, {report['prompts']} texts of {report['tokens']} tokens\na task, torch "
        f"threads: {manifest['torch_threads']}, load average afterwards "
        f"{report['load_average_after'][0]:.0f}. Tokens a second are those of that many layers of\n"
        f"experts, *measured*; error is the median of predicted against measured cycle time."
    )


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        f"{row['tokens_per_s']:.1f}",
        f"{row['read_bytes_per_token'] / 1e6:.0f}",
        f"{row['cycle_error_median']:.0%}",
    ]


def _over_tuned(rows: Rows, gibs: Sequence[float]) -> str:
    ratios = [
        f"{_speed(rows, task, gib, OURS) / _speed(rows, task, gib, TUNED):.2f} on "
        f"`{task}` with {gib:g} GiB"
        for task in dict.fromkeys(row["task"] for row in rows)
        for gib in gibs
    ]
    return f"`specfit` over the tuned tree: {', '.join(ratios)}."


def _speed(rows: Rows, task: str, gib: float, kind: str) -> float:
    return float(_found(rows, task, gib, kind)["tokens_per_s"])


def _found(rows: Rows, task: str, gib: float, kind: str) -> dict[str, Any]:
    [row] = [
        row
        for row in rows
        if (row["task"], row["cache_gib_of_48_layers"]) == (task, gib)
        and _kind(row["policy"]) == kind
    ]
    return row


def _kind(policy: str) -> str:
    return KINDS.get(policy, TUNED)
