"""The paper's table on synthetic traces for `docs/how-to/reproduce-the-table.md`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import median
from typing import Any

from benchmarks.markdown import table
from specfit.sim.synth.parameters import QWEN3_30B_A3B

OVER = {
    "over_eagle3": "EAGLE-3 with the cache",
    "over_vanilla": "EAGLE-3 without a cache",
    "over_small": "the small EAGLE-3 tree with the cache",
    "over_plain": "plain decoding with the cache",
}

Rows = Sequence[dict[str, Any]]


def block(report: dict[str, Any]) -> str:
    """Return the ratios beside the paper's, those of larger caches, and what a pass needs."""
    rows, spec = report["rows"], report["spec"]
    by_task = {task: [row for row in rows if row["task"] == task] for task in spec["paper"]}
    return "\n\n".join(
        [
            _setting(spec),
            _ratios(by_task, spec["paper"]),
            "With larger caches, of the same seed; SpecFit over",
            _larger_caches(by_task),
            "In the stated cell, medians of the seeds:",
            _needs(by_task),
        ]
    )


def _setting(spec: dict[str, Any]) -> str:
    texts, cell, cells = spec["texts"], spec["cell"], spec["range"]
    caches = " and ".join(f"`{cache}`" for cache in cells["caches"])
    rates = " and ".join(map(str, cells["gigabytes_per_s"]))
    return (
        f"**All of it is simulated on synthetic traces.** {len(texts['seeds'])} seeds, "
        f"{texts['num_prompts']} text of {texts['max_new_tokens']} tokens each,\n`{cell['cache']}` "
        f"at {cell['gigabytes_per_s']} GB/s; the range over caches and links takes in {caches} at "
        f"{rates} GB/s,\nof {cells['num_seeds']} seed. The small tree is "
        f"`{spec['policies']['small']}`."
    )


def _ratios(by_task: dict[str, Rows], paper: dict[str, list[float]]) -> str:
    lines = []
    for task, rows in by_task.items():
        printed = dict(zip(OVER, (f"{figure:.4g}" for figure in paper[task]), strict=False))
        for key, name in OVER.items():
            stated = [row[key] for row in rows if row["is_stated"]]
            ranged = [row[key] for row in rows if not row["is_beyond"]]
            found = [f"{median(stated):.2f}", _range(stated), _range(ranged)]
            lines.append([task, name, printed.get(key, "-"), *found])
    header = ["task", "SpecFit over", "paper", "here: median of the seeds", "their range"]
    return table([*header, "range over caches and links"], lines)


def _larger_caches(by_task: dict[str, Rows]) -> str:
    lines = [
        [task, f"`{row['cache']}`", *(f"{row[key]:.2f}" for key in OVER)]
        for task, rows in by_task.items()
        for row in rows
        if row["is_beyond"]
    ]
    return table(["task", "cache", *OVER.values()], lines)


def _needs(by_task: dict[str, Rows]) -> str:
    lines = []
    for task, rows in by_task.items():
        stated = [row for row in rows if row["is_stated"]]
        speeds = [
            f"{median(row[f'{name}_tokens_per_s'] for row in stated):.1f}"
            for name in ("specfit", "plain", "eagle3")
        ]
        large, small = (
            [_experts(row, name) for row in stated] for name in ("vanilla", "small_vanilla")
        )
        shares = (few / many for few, many in zip(small, large, strict=True))
        gains = (row["eagle3_tokens_per_s"] / row["vanilla_tokens_per_s"] for row in stated)
        needs = [f"{median(large):.0f}", f"{median(small):.0f}", *map(_median, (shares, gains))]
        lines.append([task, *speeds, *needs])
    header = ["task", "tokens/s: SpecFit", "plain decoding", "EAGLE-3 with the cache"]
    header += [
        "experts of a layer in a pass: EAGLE-3",
        "the small tree",
        "the second over the first",
    ]
    return table([*header, "EAGLE-3 with over without the cache"], lines)


def _experts(row: dict[str, Any], name: str) -> float:
    """Return the distinct experts of a layer a pass, which without a cache are its misses."""
    return row[f"{name}_misses_a_token"] * row[f"{name}_committed"] / QWEN3_30B_A3B.num_layers


def _median(values: Iterable[float]) -> str:
    return f"{median(values):.2f}"


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.2f}-{max(values):.2f}"
