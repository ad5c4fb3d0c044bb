"""`specfit import`: a trace that another program recorded, as a trace of ours."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from specfit.cli import options
from specfit.cli.console import print_json, print_note

FormatName = Annotated[
    str,
    typer.Argument(
        metavar="FORMAT", help="llama-moe-trace, lattice, sglang, policylang, s2-moe or esft."
    ),
]
File = Annotated[
    str, typer.Argument(metavar="FILE", help="The file; bundled: the data shipped for esft.")
]
Out = Annotated[Path, typer.Option("--out", "-o", help="New folder for the trace.")]
ExpertBytes = Annotated[
    int | None,
    typer.Option("--expert-bytes", min=1, help="Size of one expert, which no format says."),
]
NumExperts = Annotated[
    int | None,
    typer.Option(
        "--num-experts", min=1, help="Experts of a layer; by default what the file shows."
    ),
]


def import_(
    name: FormatName,
    file: File,
    out: Out,
    expert_bytes: ExpertBytes = None,
    num_experts: NumExperts = None,
    as_json: options.Json = False,
) -> None:
    """Import a trace of another program; what its format cannot know is said.

    Example: specfit import esft bundled --out deepseek
    """
    from specfit.cli.outputs import keeping_prompts
    from specfit.data import ESFT_ROUTING
    from specfit.sim.importers import import_trace
    from specfit.sim.importers.imported import ImportOptions

    is_bundled = name == "esft" and file == "bundled"
    path = ESFT_ROUTING if is_bundled else Path(file)
    given = ImportOptions(num_experts, expert_bytes)
    if name == "sglang":
        from specfit.backends.tensor_file import load_plain

        given = replace(given, load_tensors=load_plain)
    with keeping_prompts(out):
        unknown = import_trace(name, path, out, given)
    if as_json:
        print_json([{"trace": str(out), "format": name, "not_said": list(unknown)}])
    print_note(f"{path.name} imported as {out}. The format does not say:")
    for gap in unknown:
        print_note(f"  - {gap}")
    print_note(f"Next: specfit show trace {out}")
