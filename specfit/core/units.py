"""Sizes, rates and times as people write them: the one place that knows the units.

Binary units are powers of 1024, decimal ones of 1000.
"""

from __future__ import annotations

import re

from specfit.core.errors import InvalidInputError

BYTES = {
    **{"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40},
    **{"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12},
}
SECONDS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
_QUANTITY = re.compile(r"(\d{1,18}(?:\.\d+)?)\s*([A-Za-z%/]*)")


def quantity(text: str) -> tuple[float, str] | None:
    """Return number and unit of ``8GiB``, ``25%`` or ``16`` (no unit); None if it is neither."""
    match = _QUANTITY.fullmatch(text.strip())
    return None if match is None else (float(match[1]), match[2])


def bytes_of(text: str, what: str = "a size") -> int:
    """Return the bytes that ``24GiB``, ``500MiB`` or ``16GB`` means.

    Parameters
    ----------
    what : str
        What the text says, for the message.

    Raises
    ------
    InvalidInputError
        It is no size.
    """
    number, unit = quantity(text) or (0.0, "")
    if unit not in BYTES:
        raise InvalidInputError(f"{what} must be a size like 24GiB or 500MiB; got '{text}'.")
    return int(number * BYTES[unit])


def bytes_per_s_of(text: str) -> float:
    """Return the bytes a second that ``25GB/s``, ``800MB/s`` or ``2GiB/s`` means.

    Raises
    ------
    InvalidInputError
        It is no bandwidth.
    """
    number, unit = quantity(text) or (0.0, "")
    if not unit.endswith("/s") or unit[:-2] not in BYTES:
        raise InvalidInputError(f"a bandwidth must read like 25GB/s or 800MB/s; got '{text}'.")
    return number * BYTES[unit[:-2]]


def seconds_of(text: str) -> float:
    """Return the seconds that ``20us``, ``1.5ms`` or ``2s`` means.

    Raises
    ------
    InvalidInputError
        It is no time.
    """
    number, unit = quantity(text) or (0.0, "")
    if unit not in SECONDS:
        raise InvalidInputError(f"a time must read like 20us, 1.5ms or 2s; got '{text}'.")
    return number * SECONDS[unit]
