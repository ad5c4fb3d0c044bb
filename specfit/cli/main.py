"""The `specfit` program: its verbs, and where an error becomes one line and a status."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import specfit
from specfit.cli import (
    INTERRUPTED,
    calibrate,
    chat,
    check,
    decode,
    demo,
    doctor,
    explain,
    export,
    fit,
    import_,
    memory,
    new,
    record,
    repair,
    replay,
    report,
    show,
    sweep,
    synth,
    watch,
)
from specfit.cli.console import print_error
from specfit.core.errors import SpecfitError

MISUSE = 2
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
TORCH_EXTRA = ("torch", "transformers", "tokenizers")
"""What an installation that only simulates lacks."""


class Verbs(TyperGroup):
    """The verbs; an error made on purpose ends as one line on stderr and status 2."""

    def make_context(self, *args: Any, **given: Any) -> Any:
        """Read what stands before the verb."""
        with _interrupted_in_a_line():
            return super().make_context(*args, **given)

    def invoke(self, ctx: Any) -> Any:
        """Run a verb."""
        try:
            with _interrupted_in_a_line():
                return super().invoke(ctx)
        except SpecfitError as error:
            print_error(str(error))
            raise typer.Exit(MISUSE) from None
        except BrokenPipeError:
            _drop_the_rest()
            raise typer.Exit(0) from None
        except OSError as error:
            if error.filename is not None:
                print_error(f"cannot use {error.filename}: {error.strerror}. Check the path.")
            elif error.errno in NO_ROOM:
                _drop_the_rest()
                print_error(f"cannot write the result: {error.strerror}. Make room and repeat.")
            else:
                raise
            raise typer.Exit(MISUSE) from None
        except ModuleNotFoundError as error:
            if error.name not in TORCH_EXTRA:
                raise
            print_error(
                f"decoding live needs {error.name}, which is not installed. "
                f"Run: pip install 'specfit[torch]'"
            )
            raise typer.Exit(MISUSE) from None


@contextmanager
def _interrupted_in_a_line() -> Iterator[None]:
    """Let Ctrl-C end as one line that says what was kept."""
    try:
        yield
    except KeyboardInterrupt as error:
        print_error(f"interrupted; {str(error) or 'nothing was written'}.")
        raise typer.Exit(INTERRUPTED) from None


def _drop_the_rest() -> None:
    """Let what is still to be written to stdout vanish, so that leaving does not fail again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


app = typer.Typer(
    name="specfit",
    cls=Verbs,
    help="Decode mixture-of-experts models with offloaded experts faster, with the same text: "
    "draft a tree, and verify the part of it that gives the most tokens a second.",
    epilog="Start with: [bold]specfit demo[/bold]",
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def print_version(wanted: bool) -> None:
    """Print the version and stop."""
    if wanted:
        typer.echo(f"specfit {specfit.__version__}")
        raise typer.Exit


@app.callback()
def program(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=print_version, is_eager=True, help="Print the version and stop."
        ),
    ] = False,
) -> None:
    """Hold the options that stand before a verb."""


for verb in (demo.demo, decode.decode, record.record, replay.replay, sweep.sweep, explain.explain):
    app.command()(verb)
app.command()(watch.watch)
app.command()(chat.chat)
app.command()(memory.memory)
app.command()(synth.synth)
app.command("import")(import_.import_)
app.command()(export.export)
app.command()(report.report)
app.command()(repair.repair)
app.command()(calibrate.calibrate)
app.add_typer(show.app, name="show")
app.add_typer(check.app, name="check")
app.add_typer(fit.app, name="fit")
app.add_typer(new.app, name="new")
app.command()(doctor.doctor)
