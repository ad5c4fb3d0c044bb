"""The fit of the synthetic model for `docs/how-to/draw-a-synthetic-trace.md`."""

from __future__ import annotations

from typing import Any

from benchmarks.markdown import table

MARKS = {True: "yes", False: "**no**", None: ""}


def block(report: dict[str, Any]) -> str:
    """Return both tasks beside what was published."""
    tasks = report["tasks"]
    rows = []
    for lines in zip(*tasks.values(), strict=True):
        targets = dict.fromkeys(_number(line["target"]) for line in lines)
        found = [f"{_number(line['found'])} {MARKS[line['is_met']]}".strip() for line in lines]
        what = lines[0]["what"]
        name = f"&nbsp;&nbsp;{what.strip()}" if what.startswith(" ") else what
        rows.append([name, "; ".join(targets), *found])
    met = [
        f"{sum(bool(line['is_met']) for line in lines)} of "
        f"{sum(line['is_met'] is not None for line in lines)} on `{task}`"
        for task, lines in tasks.items()
    ]
    return "\n\n".join(
        [
            table(["measure", "published", *(f"synthetic `{task}`" for task in tasks)], rows),
            f"*Synthetic*: {report['num_prompts']} texts of each task, seed {report['seed']}. Near "
            f"enough is within 10 %, hit rates within 2 points:\n{', '.join(met)}.",
        ]
    )


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.3f}" if value < 1 else f"{value:.2f}" if value < 10 else f"{value:.1f}"
