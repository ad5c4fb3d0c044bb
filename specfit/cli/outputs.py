"""Writing results so that nothing half-written ever looks complete."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from specfit.core.errors import InvalidInputError


def check_can_write(*paths: Path) -> None:
    """Raise before long work if one of the files or folders could not be written after it.

    Raises
    ------
    InvalidInputError
        The nearest folder above it that exists may not be written in, or is a file.
    """
    for path in paths:
        above = next(folder for folder in path.absolute().parents if folder.exists())
        if not above.is_dir():
            raise InvalidInputError(
                f"cannot write {path}: {above} is a file. Choose a path below a folder."
            )
        if not os.access(above, os.W_OK | os.X_OK):
            raise InvalidInputError(
                f"cannot write {path}: {above} is read-only for you. Choose another folder."
            )


@contextmanager
def new_folder(path: Path, *, owned_file: str) -> Iterator[Path]:
    """Yield a folder to fill that takes the place of `path` when the block ends well.

    An older folder is replaced only if it is empty or holds `owned_file`, the mark of an earlier
    run: a mistyped path never costs anybody's files. After an error the older one is as it was.
    """
    path = path.absolute()
    if path.exists() and not _is_replaceable(path, owned_file):
        raise InvalidInputError(
            f"{path} must be new, empty, or the result of an earlier run (with a {owned_file}); "
            f"it holds other files. Choose another folder."
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir()
    try:
        yield partial
        _swap(partial, path)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


@contextmanager
def new_file(path: Path) -> Iterator[Path]:
    """Yield a path to write that is renamed to `path` when the block ends well."""
    path = path.absolute()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.partial-{os.getpid()}")
    try:
        yield partial
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def keeping_prompts(trace: Path) -> Iterator[None]:
    """Say of a Ctrl-C in the block, which writes a new trace, what of it is kept."""
    was_there = trace.exists()
    try:
        yield
    except KeyboardInterrupt:
        if was_there or not trace.exists():
            raise KeyboardInterrupt("no prompt was finished and nothing was written") from None
        raise KeyboardInterrupt(
            f"the finished prompts are kept in {trace}, marked unfinished; "
            f"see: specfit check trace {trace}"
        ) from None


def _is_replaceable(path: Path, owned_file: str) -> bool:
    return path.is_dir() and ((path / owned_file).exists() or not any(path.iterdir()))


def _swap(new: Path, path: Path) -> None:
    old = path.with_name(f".{path.name}.old-{os.getpid()}")
    if path.exists():
        path.replace(old)
    new.replace(path)
    shutil.rmtree(old, ignore_errors=True)
