"""The formats by name, and the one function that imports any of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from specfit.core.errors import InvalidInputError, did_you_mean
from specfit.sim.importers import esft, lattice, llama_csv, policylang, s2moe, sglang
from specfit.sim.importers.imported import Imported, ImportOptions, write_texts

Read = Callable[[Path, ImportOptions], Imported]


@dataclass(frozen=True)
class Format:
    """A foreign format.

    Parameters
    ----------
    what : str
        The file that it is, in a line.
    write : callable
        Reads a file, writes a trace into a new folder, and returns what the file does not say.
    """

    what: str
    write: Callable[[Path, Path, ImportOptions], tuple[str, ...]]


def _of_texts(read: Read, source: str) -> Format:
    def write(path: Path, folder: Path, options: ImportOptions) -> tuple[str, ...]:
        imported = read(path, options)
        write_texts(folder, imported, options, source)
        return imported.unknown

    return Format(source, write)


FORMATS = {
    "llama-moe-trace": _of_texts(llama_csv.read, "CSV of llama-moe-trace"),
    "lattice": _of_texts(lattice.read, "JSON lines of lattice"),
    "sglang": _of_texts(sglang.read, ".pt of SGLang's expert distribution recorder, per_token"),
    "policylang": _of_texts(policylang.read, "Parquet of moe-policylang"),
    "s2-moe": Format("tree trace of S2-MoE, JSON", s2moe.write_trace),
    "esft": Format("routing of DeepSeek-V2-Lite, npz; trees are drawn", esft.write_trace),
}


def import_trace(
    name: str, path: Path, folder: Path, options: ImportOptions | None = None
) -> tuple[str, ...]:
    """Write the trace of a foreign file into a new folder; return what the file does not say.

    Raises
    ------
    InvalidInputError
        There is no such format, or the file is not of it; the message names the place.
    """
    if name not in FORMATS:
        raise InvalidInputError(
            f"no format '{name}'; there are {', '.join(FORMATS)}.{did_you_mean(name, FORMATS)}"
        )
    if not path.is_file():
        raise InvalidInputError(f"there is no file {path}.")
    return FORMATS[name].write(path, folder, options or ImportOptions())
