"""How every kernel is compiled: cached on disk, without the GIL, without fastmath."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

_F = TypeVar("_F", bound=Callable[..., Any])


def kernel(function: _F) -> _F:
    """Compile `function` with Numba; sums keep their written order, so bounds stay bounds."""
    compiled = numba.njit(cache=True, nogil=True, error_model="numpy")(function)
    return cast(_F, compiled)
