"""Reads a `torch.save` file of another program without running any code in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from specfit.core.errors import InvalidInputError


def load_plain(path: Path) -> Any:
    """Return what a ``.pt`` file holds, if that is tensors, containers and plain values only.

    Raises
    ------
    InvalidInputError
        It is no such file, or it would run code.
    """
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # a hostile file can make the reader fail in any way
        raise InvalidInputError(
            f"{path} cannot be read as tensors and plain values ({type(error).__name__}). "
            f"Files that would run code are refused."
        ) from error
