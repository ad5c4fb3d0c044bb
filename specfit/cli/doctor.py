"""`specfit doctor`: what a report of a fault should say about the machine."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys

from specfit.cli import options
from specfit.cli.console import print_json, print_table

PACKAGES = (
    "numpy",
    "numba",
    "pyarrow",
    "matplotlib",
    "typer",
    "rich",
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
)


def doctor(as_json: options.Json = False) -> None:
    """Say which versions, memory limits and devices this machine has, for a report of a fault.

    Example: specfit doctor
    """
    facts = found()
    if as_json:
        print_json([facts])
    else:
        print_table(["", "this machine"], list(facts.items()), is_numeric=False)


def found() -> dict[str, str]:
    """Return the facts by name."""
    from specfit.cli.inputs import BUNDLED
    from specfit.cli.manifest import git_commit, manifest

    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    free = shutil.disk_usage(os.curdir).free
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "specfit": manifest()["specfit"],
        "commit": git_commit() or "an installed package",
        "python": f"{platform.python_version()} at {sys.executable}",
        "system": platform.platform(),
        "processors": f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} usable",
        "memory": f"{memory / 2**30:.1f} GiB",
        "memory that may be pinned": "unlimited" if locked < 0 else f"{locked / 2**20:.1f} MiB",
        "disk free here": f"{free / 2**30:.1f} GiB",
        "nvidia-smi": shutil.which("nvidia-smi") or "not found: decoding runs on the CPU",
        "bundled models": ", ".join(sorted(p.parent.name for p in BUNDLED.glob("*/config.json"))),
        **{name: installed(name) for name in PACKAGES},
    }


def installed(package: str) -> str:
    """Return the version of a package, or that it is missing."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
