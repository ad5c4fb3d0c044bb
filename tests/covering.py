"""Combinations of settings in which every two values of different factors meet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations

import numpy as np

Combination = dict[str, str]
Pair = tuple[tuple[str, str], tuple[str, str]]


def pairs_of(row: Combination) -> set[Pair]:
    """Return the pairs of values that meet in a combination."""
    return set(combinations(sorted(row.items()), 2))


def all_pairs(factors: Mapping[str, Sequence[str]]) -> set[Pair]:
    """Return every pair of values of two factors."""
    found = set()
    for one, other in combinations(sorted(factors), 2):
        found |= {((one, a), (other, b)) for a in factors[one] for b in factors[other]}
    return found


def covering(factors: Mapping[str, Sequence[str]], count: int, key: int) -> list[Combination]:
    """Return so many combinations: greedily those with most pairs that have not met, of 40 drawn.

    Each is drawn around a pair that has not met; when all have, at random.
    """
    rng = np.random.default_rng(key)
    missing, rows = sorted(all_pairs(factors)), []
    while len(rows) < count:
        drawn = [
            {name: str(rng.choice(values)) for name, values in factors.items()} for _ in range(40)
        ]
        if missing:
            seed = dict(missing[int(rng.integers(len(missing)))])
            drawn = [row | seed for row in drawn]
        open_pairs = set(missing)
        best = max(drawn, key=lambda row: len(pairs_of(row) & open_pairs))
        rows.append(best)
        missing = sorted(open_pairs - pairs_of(best))
    return rows
