"""`specfit doctor`: what a report of a fault should say about the machine."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import sys
import tempfile
from pathlib import Path

from specfit.cli import options
from specfit.cli.console import print_json, print_table

PACKAGES = (
    "numpy",
    "numba",
    "pyarrow",
    "matplotlib",
    "joblib",
    "typer",
    "rich",
    "torch",
    "transformers",
    "tokenizers",
    "safetensors",
)
RESULTS = Path(__file__).parents[2] / "benchmarks" / "results"
GPU_RESULTS = "gpu*.json*"
"""Names of the committed results of runs on a GPU."""


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
    from specfit.backends.installation import cuda_in_torch
    from specfit.cli.manifest import git_commit, manifest
    from specfit.data import bundled_models

    locked, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return {
        "specfit": manifest()["specfit"],
        "commit": git_commit() or "an installed package",
        "python": f"{platform.python_version()} at {sys.executable}",
        "system": platform.platform(),
        "processors": f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} usable",
        "memory": f"{memory / 2**30:.1f} GiB",
        "memory that may be pinned": "unlimited" if locked < 0 else f"{locked / 2**20:.1f} MiB",
        "disk free here": free_space(Path.cwd()),
        "disk free for temporary files": free_space(Path(tempfile.gettempdir())),
        "nvidia-smi": shutil.which("nvidia-smi") or "not found: decoding runs on the CPU",
        "CUDA in torch": cuda_in_torch(),
        "CUDA in specfit": cuda_in_specfit(),
        "bundled models": ", ".join(bundled_models()),
        "terminal": terminal(),
        **{name: installed(name) for name in PACKAGES},
    }


def free_space(folder: Path) -> str:
    """Return the room in a folder's file system, and whether one may write there."""
    said = f"{shutil.disk_usage(folder).free / 2**30:.1f} GiB"
    return said if os.access(folder, os.W_OK) else f"{said}, but {folder} is read-only"


def cuda_in_specfit() -> str:
    """Return whether a run on a GPU is on record; none is as long as no result says so."""
    results = sorted(path.name for path in RESULTS.glob(GPU_RESULTS))
    if results:
        return f"results of GPU runs: {', '.join(results)}"
    return "the CUDA path has never run on a GPU: no result of one is on record"


def terminal() -> str:
    """Return how wide the terminal is and whether it may show colours."""
    size = shutil.get_terminal_size()
    kind = "a terminal" if sys.stdout.isatty() else "no terminal"
    colours = ", NO_COLOR is set" if os.environ.get("NO_COLOR") else ""
    return f"{kind}, {size.columns} columns{colours}"


def installed(package: str) -> str:
    """Return the version of a package, or that it is missing."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"
