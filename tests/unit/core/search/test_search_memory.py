"""A pricer's memory: its parts fill the one array that they are cut from, and none is another's."""

from __future__ import annotations

import numpy as np
import pytest

from specfit.core.search._memory import new_memory, split


@pytest.mark.parametrize(
    ("shape", "per_token", "capacity"),
    [((0, 0), 0, 0), ((1, 1), 0, 1), ((2, 5), 3, 7), ((48, 128), 8, 64)],
)
def test_the_parts_fill_the_memory(shape: tuple[int, int], per_token: int, capacity: int) -> None:
    whole = new_memory(shape, per_token, capacity)
    parts = split(whole, shape[0] * shape[1], shape[0] * per_token, capacity)
    assert sum(part.nbytes for part in parts) == whole.nbytes
    for number, part in enumerate(parts):
        part.view(np.uint8)[...] = number
    assert all((part.view(np.uint8) == number).all() for number, part in enumerate(parts))
