"""`specfit repair`: write the good part of a damaged trace to a new one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specfit.cli import options
from specfit.cli.console import print_json, print_note, print_text
from specfit.core.errors import TraceFormatError

TraceFolder = Annotated[Path, typer.Argument(help="The damaged or unfinished trace.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder of the new trace.")]


def repair(trace: TraceFolder, out: Out, as_json: options.Json = False) -> None:
    """Write every prompt of a trace that can be read in full to a new trace, and say what is lost.

    Example: specfit repair trace/ -o good/
    """
    from specfit.cli.outputs import keeping_prompts
    from specfit.sim.trace import check_trace, repair_trace

    if check_trace(trace).num_good == 0:
        raise TraceFormatError(f"{trace} has no prompt that can be read in full; nothing to save.")
    with keeping_prompts(out):
        report = repair_trace(trace, out)
    for problem in report.problems:
        print_note(problem)
    if as_json:
        found = {"num_good": report.num_good, "num_expected": report.num_expected}
        problems = [str(problem) for problem in report.problems]
        print_json([{"trace": str(out), **found, "problems": problems}])
        return
    lost = "" if report.num_expected is None else f" of {report.num_expected}"
    print_text(f"{report.num_good}{lost} prompts are in {out}.")
