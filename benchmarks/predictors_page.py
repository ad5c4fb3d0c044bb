"""The predictor benchmark's tables for `docs/explanation/how-good-the-predictions-are.md`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.markdown import table


def block(report: dict[str, Any]) -> str:
    """Return the tables and what one must know to read them."""
    said = report["manifest"]
    flags = " ".join(f"--{k.replace('_', '-')} {v}" for k, v in said["settings"].items())
    parts = [
        f"Fitted on {said['num_fit_prompts']} texts and judged on {said['num_judged_prompts']} "
        f"others of `{said['model']}` with `{said['drafter']}`, greedy; profile "
        f"'{said['profile']['name']}' ({said['profile']['kind']}). `{report['command']} {flags}`",
        "## Experts",
        *_experts(report["experts"]),
        "## Shared experts",
        *_overlap(report["overlap"]),
        "## Acceptance",
        *_acceptance(report["acceptance"]),
        "## What it is worth",
        *_simulated(report),
    ]
    return "\n\n".join(parts)


def _experts(rows: Sequence[dict[str, Any]]) -> list[str]:
    depths = list(rows[0]["recall_by_depth"])
    by_depth = [
        [row["predictor"], *(f"{row['recall_by_depth'][d]:.2f}" for d in depths)] for row in rows
    ]
    layers = range(len(rows[0]["recall_by_layer"]))
    by_layer = [
        [row["predictor"], *(f"{value:.2f}" for value in row["recall_by_layer"])] for row in rows
    ]
    others = [
        [
            row["predictor"],
            f"{row['ece']:.4f}",
            f"{max(row['ece_by_layer']):.4f}",
            f"{row['brier']:.4f}",
            f"{row['union_rank_correlation']:.2f}",
            f"{row['union_mean_error']:+.2f}",
            f"{row['union_mean_absolute_error']:.2f}",
        ]
        for row in rows
    ]
    names = ["ECE", "worst layer", "Brier", "union: rank", "error", "absolute error"]
    return [
        "Recall at K of drafted nodes by depth (0 is the root):",
        table(["predictor", *depths], by_depth),
        "By layer:",
        table(["predictor", *(f"layer {n}" for n in layers)], by_layer),
        "Calibration, and the marginal union, whose mean is "
        f"{rows[0]['union_mean']:.1f} experts a node:",
        table(["predictor", *names], others),
    ]


def _overlap(rows: Sequence[dict[str, Any]]) -> list[str]:
    kinds = list(dict.fromkeys(row["pair"] for row in rows))
    depths = sorted({row["depth"] for row in rows})
    found = {(row["pair"], row["depth"]): f"{row['overlap']:.2f}" for row in rows}
    lines = [[kind, *(found.get((kind, d), "") for d in depths)] for kind in kinds]
    return [
        "Share of one node's experts that the other needs too, by the depth of the (lower) node:",
        table(["pair", *map(str, depths)], lines),
    ]


def _acceptance(rows: Sequence[dict[str, Any]]) -> list[str]:
    methods = list(dict.fromkeys(row["method"] for row in rows))
    depths = [row["depth"] for row in rows if row["method"] == methods[0]]
    found = {(row["method"], row["depth"]): row for row in rows}
    cells = [
        [
            method,
            f"{found[method, 'all']['brier']:.4f}",
            *(f"{found[method, depth]['ece']:.3f}" for depth in depths),
        ]
        for method in methods
    ]
    return [
        "ECE by depth of the nodes whose parent is on the true path; `identity` is the drafter:",
        table(["method", "Brier", *map(str, depths)], cells),
    ]


def _simulated(report: dict[str, Any]) -> list[str]:
    tables = {k.split(", ")[1]: v for k, v in report.items() if k.startswith("simulated, ")}
    if not tables:
        return ["Not measured yet."]
    caches = sorted(tables)
    first = tables[caches[0]]
    lines = []
    for i, row in enumerate(first):
        speeds = [f"{tables[cache][i]['simulated_speedup']:.2f}" for cache in caches]
        lines.append([row["predictor"], row["coverage"], row["acceptance"], *speeds])
    num_prompts = report["manifest"]["settings"]["replayed"]
    return [
        f"*Simulated* speed-up of `specfit` over plain decoding with the same cache, "
        f"{num_prompts} prompts:",
        table(["experts", "coverage", "acceptance", *(f"`{cache}`" for cache in caches)], lines),
    ]
