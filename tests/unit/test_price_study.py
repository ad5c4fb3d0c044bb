"""The price study: what is asked of the search is the price that the study names."""

from __future__ import annotations

import pytest

from benchmarks import price_page
from benchmarks.price_study import CACHES, DISCOUNTS, PRICES, Priced, StudyRow, tables
from specfit.core.backend import Request
from specfit.core.policy import Outcome
from specfit.testing.toy import toy_backend
from specfit.testing.worlds import run_toy

REQUEST = Request((11, 7, 5, 3, 2), 30)
ROWS = [
    StudyRow(cache, price, discount, 1.0, 1.0, 1.1 if cache == CACHES[0] else 1.0, 0.9, 1.2)
    for cache in CACHES
    for price in PRICES
    for discount in DISCOUNTS
]


class Watched(Priced):
    """Keeps the price of each cycle and the rate so far, whose horizon never ends."""

    def observe(self, outcome: Outcome) -> None:
        prediction = outcome.selection.prediction
        assert prediction is not None
        self.seen.append((self.search.price, len(outcome.committed), prediction.cycle_s))
        super().observe(outcome)


def run(horizon: int | None) -> tuple[list[int], list[tuple[object, int, float]]]:
    policy = Watched(horizon=horizon, longest_pause=0)
    policy.seen = []  # type: ignore[attr-defined]
    result = run_toy(policy, toy_backend("lru:50%"), REQUEST)
    return list(result.tokens), policy.seen  # type: ignore[attr-defined]


def test_without_a_horizon_every_cycle_maximises_its_own_rate() -> None:
    _, seen = run(None)
    assert len(seen) > 3
    assert {price for price, *_ in seen} == {"cycle"}


def test_the_running_price_is_the_rate_of_the_cycles_before() -> None:
    _, seen = run(10**9)
    assert seen[0][0] == "cycle"
    for i in range(1, len(seen)):
        tokens, seconds = (sum(cycle[j] for cycle in seen[:i]) for j in (1, 2))
        assert seen[i][0] == pytest.approx(tokens / seconds, rel=1e-6)


def test_every_price_gives_the_same_text() -> None:
    assert run(None)[0] == run(8)[0] == run(10**9)[0]


def test_the_tables_hold_every_cell() -> None:
    text = tables(ROWS)
    assert text.count("1.100") == len(PRICES) * len(DISCOUNTS)
    assert text.count("1.024") == len(PRICES) * len(DISCOUNTS)


def test_the_first_price_forgives_nothing_and_the_running_ones_keep_the_default() -> None:
    first, *others = (Priced(**settings) for settings in PRICES.values())
    assert (first.salvage, first.spare_salvage, first.horizon) == (0.0, 0.0, None)
    assert {p.salvage for p in others if p.horizon} == {Priced().salvage}


def test_the_page_shows_the_mean_over_caches() -> None:
    page = price_page.block({"manifest": {"prompts": 24}, "rows": [vars(row) for row in ROWS]})
    assert page.count(" 1.024 |") == len(PRICES) * len(DISCOUNTS)
    assert "| cycle, salvage 0.4 |" in page
