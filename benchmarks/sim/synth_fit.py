"""How near synthetic traces come to what was published: `python -m benchmarks.sim.synth_fit`.

Draws texts of both tasks, measures them as ``specfit synth --show-fit`` does, and writes the lines.
All of it is synthetic.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from joblib import Parallel, delayed

from specfit.cli.manifest import manifest
from specfit.cli.specs import plan_from
from specfit.cli.synth import DEFAULT_PLANS
from specfit.sim.synth.fit import Line, fit_lines
from specfit.sim.synth.parameters import task_named
from specfit.sim.synth.trace import write_synthetic
from specfit.sim.trace import TraceReader

RESULTS = Path(__file__).parents[1] / "results" / "synth_fit.json"
TASKS = ("gsm8k", "cnn-dm")


def fit(task: str, num_prompts: int, seed: int, folder: Path) -> list[dict[str, Any]]:
    """Draw texts of a task into a new folder, and return the lines of the fit."""
    chosen = task_named(task)
    write_synthetic(
        folder,
        chosen,
        tuple(plan_from(plan) for plan in DEFAULT_PLANS),
        seed=seed,
        num_prompts=num_prompts,
        max_new_tokens=chosen.text_tokens,
    )
    return [row_of(line) for line in fit_lines(TraceReader(folder))]


def row_of(line: Line) -> dict[str, Any]:
    """Return a line as it is written; where nothing was published the target is None."""
    is_met = None if line.is_met is None else bool(line.is_met)
    return {
        "what": line.what,
        "target": None if is_met is None else float(line.target),
        "found": float(line.found),
        "is_met": is_met,
        "source": line.source,
    }


def main() -> None:
    """Draw, measure and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--num-prompts", type=int, default=25, help="texts of each task")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    report: dict[str, Any] = {"synthetic": True, "manifest": manifest()}
    report |= {"num_prompts": options.num_prompts, "seed": options.seed, "tasks": {}}
    with tempfile.TemporaryDirectory() as work:
        fits = Parallel(n_jobs=-1)(
            delayed(fit)(task, options.num_prompts, options.seed, Path(work) / task)
            for task in TASKS
        )
        for task, lines in zip(TASKS, fits, strict=True):
            report["tasks"][task] = lines
            print("\n".join(f"{task}: {line['what']}: {line['found']:.3f}" for line in lines))
    options.out.write_text(json.dumps(report, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
