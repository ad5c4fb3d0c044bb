"""`specfit check`: whether a trace is whole."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specfit.cli.console import print_json, print_text

CHECK_FAILED = 1

app = typer.Typer(no_args_is_help=True, help="Check that a trace is whole; status 1 if it is not.")


@app.callback()
def check() -> None:
    """Check that a trace is whole; status 1 if it is not."""


@app.command("trace")
def check_trace(
    trace: Annotated[Path, typer.Argument(help="Folder that `specfit record` wrote.")],
    as_json: Annotated[bool, typer.Option("--json", help="JSON lines on stdout.")] = False,
) -> None:
    """Read all of a trace and say what is damaged or missing, and what can still be read.

    Example: specfit check trace trace/
    """
    from specfit.sim.trace import check_trace as check_folder

    report = check_folder(trace)
    good = len(report.good_prompts)
    if as_json:
        print_json(
            [
                {
                    "trace": str(trace),
                    "is_good": report.is_good,
                    "num_prompts_good": good,
                    "problems": report.problems,
                }
            ]
        )
    else:
        verdict = "whole" if report.is_good else "not whole"
        print_text(f"{trace} is {verdict}: {good} prompts can be read.")
        for problem in report.problems:
            print_text(f"- {problem}")
    if not report.is_good:
        raise typer.Exit(CHECK_FAILED)
