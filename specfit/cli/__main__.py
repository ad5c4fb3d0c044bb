"""Runs the command line as ``python -m specfit.cli``."""

from specfit.cli.main import app

app()
