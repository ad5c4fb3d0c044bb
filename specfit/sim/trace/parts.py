"""The files of a trace: names that carry part number and checksum, published by rename.

A part is a pair of Parquet files, rows first and prompts last. It is complete when its prompts file
is in place. The name holds the checksum, so no other file need be trusted to find or verify it.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from pathlib import Path

OPEN_PREFIX = ".open-"
_NAME = re.compile(r"(prompts|cycles|positions)-(\d{6})-([0-9a-f]{32})\.parquet")
_BLOCK_BYTES = 2**20


@dataclass(frozen=True)
class PartFile:
    """One published file of a part."""

    path: Path
    table: str
    number: int
    checksum: str


@dataclass(frozen=True)
class Part:
    """A complete part: its rows and its prompts."""

    number: int
    rows: PartFile
    prompts: PartFile


def open_name(table: str, number: int) -> str:
    """Return the name of a file that is still being written."""
    return f"{OPEN_PREFIX}{table}-{number:06d}.parquet"


def publish(open_path: Path, table: str, number: int) -> Path:
    """Give a finished file its final name, in one step, after its bytes are on the disk."""
    checksum = checksum_of(open_path)
    with open_path.open("rb") as file:
        os.fsync(file.fileno())
    path = open_path.with_name(f"{table}-{number:06d}-{checksum}.parquet")
    open_path.replace(path)
    return path


def checksum_of(path: Path) -> str:
    """Return the first 32 hexadecimal digits of a file's SHA-256."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()[:32]


def list_files(folder: Path) -> tuple[list[PartFile], list[str]]:
    """Return the published files of a trace by number, and the names of all other files."""
    files: list[PartFile] = []
    others: list[str] = []
    for path in sorted(folder.iterdir()):
        match = _NAME.fullmatch(path.name)
        if match and path.is_file():
            files.append(PartFile(path, match[1], int(match[2]), match[3]))
        else:
            others.append(path.name)
    return sorted(files, key=lambda f: f.number), others
