"""`specfit calibrate`: what a cycle costs on this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from specfit.cli import options
from specfit.cli.console import print_json, print_note, print_table
from specfit.cli.live_options import ModelOptions
from specfit.cli.option_groups import with_options

Out = Annotated[Path, typer.Option("--out", "-o", help="TOML file to write.")]


@with_options
def calibrate(
    *,
    out: Out = Path("profile.toml"),
    model_options: ModelOptions,
    as_json: options.Json = False,
) -> None:
    """Measure this machine with a model, so that predicted seconds are its own.

    Example: specfit calibrate --out profile.toml --link pcie4
    """
    from specfit.cli.live import connect, load_backend, measured_profile
    from specfit.cli.outputs import check_can_write, new_file
    from specfit.cli.specs import link_from

    check_can_write(out)
    link = None if model_options.link is None else link_from(model_options.link)
    with load_backend(model_options) as backend:
        profile = connect(backend, measured_profile(backend), link)
    with new_file(out) as partial:
        profile.write(partial)
    if as_json:
        print_json([asdict(profile)])
    else:
        rows = [
            (key, f"{value:.6g}" if isinstance(value, float) else str(value))
            for key, value in asdict(profile).items()
        ]
        print_table(["profile", str(out)], rows, is_numeric=False)
    print_note(f"written to {out}. Use it: specfit decode --profile {out} --prompt ...")
