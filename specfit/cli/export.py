"""`specfit export`: the texts of a trace as another program reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specfit.cli import options
from specfit.cli.console import print_json, print_note

FormatName = Annotated[str, typer.Argument(metavar="FORMAT", help="policylang.")]
TraceFolder = Annotated[Path, typer.Argument(help="The trace.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="The file to write.")]


def export(name: FormatName, trace: TraceFolder, out: Out, as_json: options.Json = False) -> None:
    """Write the texts of a trace and their experts for another program to replay.

    Example: specfit export policylang trace -o trace.parquet
    """
    from specfit.cli.outputs import new_file
    from specfit.sim.importers.exported import export_trace
    from specfit.sim.trace import TraceReader

    with new_file(out) as path:
        num_texts = export_trace(name, TraceReader(trace), path)
    if as_json:
        print_json([{"file": str(out), "format": name, "num_texts": num_texts}])
    print_note(f"{num_texts} texts and their experts are in {out}; drafts are left out.")
