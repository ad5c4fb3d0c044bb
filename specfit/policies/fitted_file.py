"""Files of fitted numbers: tensors in safetensors, everything else in JSON beside them.

Strict both ways: an unknown, missing or misshapen entry is an error, and so is a tensor file that
the JSON does not name by checksum.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from specfit.core.errors import CheckpointError

Arrays = dict[str, NDArray[Any]]
_ENTRIES = {"kind", "version", "constants", "provenance", "sha256"}


@dataclass(frozen=True)
class TensorSpec:
    """Type and number of axes of a stored tensor."""

    dtype: np.dtype[Any]
    ndim: int


@dataclass(frozen=True)
class FittedFile:
    """The layout of one kind of fitted numbers: ``<kind>.safetensors`` and ``<kind>.json``.

    Parameters
    ----------
    kind : str
        What it holds; the stem of both files.
    version : int
        Version of the layout; another one is refused.
    tensors : mapping of str to TensorSpec
        Exactly the tensors of the file.
    """

    kind: str
    version: int
    tensors: Mapping[str, TensorSpec]

    def save(
        self,
        folder: Path,
        arrays: Arrays,
        constants: Mapping[str, Any],
        provenance: Mapping[str, Any],
    ) -> None:
        """Write both files; each appears whole or not at all, the JSON last."""
        folder.mkdir(parents=True, exist_ok=True)
        data = save({name: np.ascontiguousarray(array) for name, array in arrays.items()})
        header = {
            "kind": self.kind,
            "version": self.version,
            "constants": dict(constants),
            "provenance": dict(provenance),
            "sha256": hashlib.sha256(data).hexdigest(),
        }
        _write(folder / f"{self.kind}.safetensors", data)
        _write(folder / f"{self.kind}.json", (json.dumps(header, indent=2) + "\n").encode())

    def exists_in(self, folder: Path) -> bool:
        """Whether `folder` holds either of the two files."""
        return any((folder / f"{self.kind}{end}").exists() for end in (".json", ".safetensors"))

    def load(self, folder: Path) -> tuple[Arrays, dict[str, Any]]:
        """Return the tensors and the constants of a folder.

        Raises
        ------
        CheckpointError
            A file is missing, damaged, of another kind or version, or not the other's.
        """
        header = self._read_header(folder)
        path = folder / f"{self.kind}.safetensors"
        data = _read(path)
        if hashlib.sha256(data).hexdigest() != header["sha256"]:
            raise CheckpointError(
                f"{path} is not the file that {self.kind}.json names: its sha256 differs. "
                f"Restore both from one place, or fit again."
            )
        try:
            arrays = load(data)
        except SafetensorError as error:
            raise CheckpointError(f"{path} is damaged: {error}. Fit again.") from error
        self._check_tensors(path, arrays)
        return arrays, header["constants"]

    def provenance(self, folder: Path) -> dict[str, Any]:
        """Return what the numbers of a folder were fitted on and how."""
        provenance: dict[str, Any] = self._read_header(folder)["provenance"]
        return provenance

    def _read_header(self, folder: Path) -> dict[str, Any]:
        path = folder / f"{self.kind}.json"
        try:
            header = json.loads(_read(path))
        except ValueError as error:
            raise CheckpointError(f"{path} is not JSON: {error}. Fit again.") from error
        if not isinstance(header, dict) or set(header) != _ENTRIES:
            raise CheckpointError(
                f"{path} must hold exactly {', '.join(sorted(_ENTRIES))}. Fit again."
            )
        if (header["kind"], header["version"]) != (self.kind, self.version):
            raise CheckpointError(
                f"{path} holds {header['kind']} version {header['version']}; this specfit reads "
                f"{self.kind} version {self.version}. Fit again."
            )
        return header

    def _check_tensors(self, path: Path, arrays: Arrays) -> None:
        found = {name: TensorSpec(array.dtype, array.ndim) for name, array in arrays.items()}
        if found != dict(self.tensors):
            expected = ", ".join(f"{n} {s.dtype}[{s.ndim}d]" for n, s in self.tensors.items())
            given = ", ".join(f"{n} {s.dtype}[{s.ndim}d]" for n, s in found.items())
            raise CheckpointError(
                f"{path} must hold exactly {expected}; it holds {given}. Fit again."
            )


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}.") from error


def _write(path: Path, data: bytes) -> None:
    partial = path.with_name(path.name + ".partial")
    partial.write_bytes(data)
    os.replace(partial, path)
