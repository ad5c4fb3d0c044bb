"""`specfit demo`: the whole story on the bundled model, in one command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from specfit.cli import options
from specfit.cli.console import print_json, print_table, print_text, progress

if TYPE_CHECKING:
    from specfit.cli.demo_run import DemoRun

RESULTS_FILE = "results.json"

Out = Annotated[
    Path, typer.Option("--out", "-o", help="Folder for the results; replaced if it is one.")
]

Tokens = Annotated[
    int | None,
    typer.Option(
        "--max-new-tokens",
        "-n",
        min=1,
        help="Tokens a text; by default what decodes in some 70 s here, 16 to 48.",
    ),
]


def demo(
    out: Out = Path("demo-results"),
    cache: options.OneCache = "lru:50%",
    max_new_tokens: Tokens = None,
    model: options.Model = "tiny",
    prompts: options.PromptFile = None,
    as_json: options.Json = False,
) -> None:
    """Decode real prompts under three policies with experts offloaded, record, replay, and compare.

    Example: specfit demo --cache lru:25%
    """
    from specfit.cli import demo_files
    from specfit.cli.demo_run import DemoOptions, run_demo
    from specfit.cli.outputs import new_folder

    wanted = DemoOptions(model, cache, max_new_tokens, prompts)
    try:
        with new_folder(out, owned_file=RESULTS_FILE) as folder:
            with progress() as bars:
                run = run_demo(wanted, folder, bars)
            demo_files.write_results(run, folder)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(f"nothing of this run was kept; {out} is as it was") from None
    if as_json:
        print_json(demo_files.json_rows(run))
    else:
        print_run(run, out)
    if run.differing_texts():
        raise typer.Exit(options.CHECK_FAILED)


def print_run(run: DemoRun, out: Path) -> None:
    """Print the table, where the pictures are, and what happened in words."""
    from specfit.cli import demo_files

    table = run.comparison
    print_table(
        table.header(),
        table.rows(),
        title=f"{demo_files.title(run)}\n{demo_files.link_note(run)}",
        note=demo_files.note(run),
    )
    print_text(demo_files.losslessness(run))
    print_text(
        f"Pictures and numbers: {out}/speed.png, tree.png (also .svg), results.json, traces."
    )
    print_text(demo_files.closing_line(run))
