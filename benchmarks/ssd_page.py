"""The disk benchmark's table for `docs/how-to/run-qwen3-30b-a3b.md`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.markdown import table

PLAIN, OURS, TUNED = "plain", "`specfit`", "EAGLE-3, tuned"
"""Policies as the page names them; the tree is that of its run."""
KINDS = {"autoregressive": PLAIN, "specfit": OURS}

Rows = Sequence[dict[str, Any]]


def block(report: dict[str, Any]) -> str:
    """Return what was run, a line a cache, task and policy, and how `specfit` stands to others."""
    rows = report["rows"]
    header = ["cache", "task", "policy", "tokens/s", "MB a token", "GB/s", "of sequential"]
    header += ["cycle, measured", "predicted", "error", "hiccups"]
    lines = [_line(row) for row in rows]
    return "\n\n".join([_setting(report), table(header, lines), _over(rows)])


def _setting(report: dict[str, Any]) -> str:
    manifest = report["manifest"]
    return (
        f"`benchmarks/results/ssd.json`, commit {manifest['commit']}: **{report['layers']} of the "
        f"48 layers**, {report['prompts']} texts of {report['tokens']} tokens\na task, each "
        f"decoded {report.get('rounds', 1)} times under each policy, torch threads: "
        f"{manifest['torch_threads']}, load average afterwards "
        f"{report['load_average_after'][0]:.0f}. Tokens a second are those of that many layers of\n"
        f"experts, *measured*; routing, drafts and acceptance are *synthetic*. `all` is the texts "
        f"of all tasks together;\nerror is the median of predicted against measured cycle time; a "
        f"hiccup is a cycle of three times the predicted time or more."
    )


def _line(row: dict[str, Any]) -> list[str]:
    return [
        f"{row['cache_gib_of_48_layers']:g} GiB",
        row["task"],
        _kind(row["policy"]),
        f"{row['tokens_per_s']:.2f}",
        f"{row['read_bytes_per_token'] / 1e6:.0f}",
        f"{row['read_bytes_per_s'] / 1e9:.2f}",
        f"{row['read_bytes_per_s'] / row['sequential_bytes_per_s']:.0%}",
        f"{row['measured_cycle_s'] * 1e3:.0f} ms",
        f"{row['predicted_cycle_s'] * 1e3:.0f} ms",
        f"{row['cycle_error_median']:.0%}",
        str(row["hiccups"]),
    ]


def _over(rows: Rows) -> str:
    header = ["cache", "task", "`specfit` over plain", "over the tuned tree"]
    groups = dict.fromkeys((row["cache_gib_of_48_layers"], row["task"]) for row in rows)
    lines = [
        [
            f"{gib:g} GiB",
            task,
            *(
                f"{_speed(rows, task, gib, OURS) / _speed(rows, task, gib, other):.2f}"
                for other in (PLAIN, TUNED)
            ),
        ]
        for gib, task in groups
    ]
    return table(header, lines)


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
