"""`specfit calibrate`: what a cycle costs on this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from specfit.cli import options
from specfit.cli.console import print_json, print_note, print_table

Out = Annotated[Path, typer.Option("--out", "-o", help="TOML file to write.")]


def calibrate(
    out: Out = Path("profile.toml"),
    model: options.Model = "tiny",
    head: options.Head = None,
    link: options.Link = None,
    threads: options.Threads = None,
    device: options.Device = "cpu",
    dtype: options.Dtype = "float32",
    drafter: options.DrafterSpec = None,
    packed: options.Packed = None,
    as_json: options.Json = False,
) -> None:
    """Measure this machine with a model, so that predicted seconds are its own.

    Example: specfit calibrate --out profile.toml --link pcie4
    """
    from specfit.backends import load
    from specfit.cli.inputs import model_folder
    from specfit.cli.live import connect, measured_profile
    from specfit.cli.outputs import new_file
    from specfit.cli.specs import link_from

    wanted = None if link is None else link_from(link)
    with load(
        model_folder(model),
        head=head,
        drafter=drafter,
        device=device,
        dtype=dtype,
        threads=threads,
        packed=packed,
    ) as backend:
        profile = connect(backend, measured_profile(backend), wanted)
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
