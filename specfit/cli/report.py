"""`specfit report`: the results of a sweep as a page, as Markdown and as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from specfit.cli.console import print_text
from specfit.cli.outputs import new_folder

PAGE, MARKDOWN, PICTURES = "report.html", "report.md", "pictures"

ResultsFolder = Annotated[
    Path, typer.Argument(metavar="RESULTS", help="Folder that `specfit sweep` wrote.")
]
Out = Annotated[
    Path | None,
    typer.Option("--out", "-o", help="New folder; by default report in the folder of the results."),
]


def report(results: ResultsFolder, out: Out = None) -> None:
    """Show the results of a sweep: one HTML file that opens from disk, Markdown, and pictures.

    Example: specfit report results/
    """
    from specfit.report import style
    from specfit.report.sweep_markdown import markdown_of
    from specfit.report.sweep_page import page_of
    from specfit.report.sweep_report import report_of
    from specfit.sim.results import read_results

    found = report_of(read_results(results))
    folder = out or (results if results.is_dir() else results.parent) / "report"
    with new_folder(folder, owned_file=PAGE) as partial:
        (partial / PICTURES).mkdir()
        for picture in found.pictures:
            picture.figure.savefig(partial / PICTURES / f"{picture.key}.png", dpi=style.DPI)
        (partial / MARKDOWN).write_text(markdown_of(found, PICTURES), "utf-8")
        (partial / PAGE).write_text(page_of(found), "utf-8")
    print_text(found.source)
    for sentence in found.findings:
        print_text(f"- {sentence}")
    print_text(f"Open {folder / PAGE}; the same as Markdown and PNG is beside it.")
