"""What tells one checkpoint from another without reading all of it."""

from __future__ import annotations

import hashlib
from pathlib import Path

from specfit.core.errors import CheckpointError

_EDGE_BYTES = 1 << 20


def fingerprint(*folders: Path) -> str:
    """Return a digest of the checkpoints in the given folders, in order: hex, 64 digits.

    Covers each folder's ``config.json`` and ``tokenizer.json`` (where there is one), and the name,
    size, first and last MiB of each of its ``*.safetensors``; files of subfolders do not count.

    Raises
    ------
    CheckpointError
        A folder holds no ``*.safetensors``.
    """
    digest = hashlib.sha256()
    for folder in folders:
        weights = sorted(folder.glob("*.safetensors"))
        if not weights:
            raise CheckpointError(f"{folder} holds no *.safetensors. Give a checkpoint's folder.")
        for name in ("config.json", "tokenizer.json"):
            if (folder / name).is_file():
                digest.update(name.encode() + (folder / name).read_bytes())
        for path in weights:
            digest.update(f"{path.name} {path.stat().st_size} ".encode() + _edges(path))
    return digest.hexdigest()


def _edges(path: Path) -> bytes:
    """First and last MiB of a file; all of a smaller one."""
    with path.open("rb") as file:
        first = file.read(_EDGE_BYTES)
        file.seek(max(len(first), path.stat().st_size - _EDGE_BYTES))
        return first + file.read()
