"""Every shipped prefetcher keeps the prefetcher contract."""

from __future__ import annotations

import specfit.sim.prefetch_oracle
from specfit.core.prefetch import NoPrefetch, PredictedUnion, PreviousToken, prefetchers
from specfit.testing.prefetch_contract import PrefetcherContract
from tests.contract.shipped import shipped


class TestNoPrefetch(PrefetcherContract):
    make = staticmethod(lambda: NoPrefetch())


class TestPreviousToken(PrefetcherContract):
    make = staticmethod(lambda: PreviousToken(3))


class TestPredictedUnion(PrefetcherContract):
    make = staticmethod(lambda: PredictedUnion(0.3))


def test_every_shipped_prefetcher_is_held_to_it() -> None:
    """But for the oracle, which breaks F4 on purpose: `tests/contract_meta`."""
    oracle = specfit.sim.prefetch_oracle.OraclePrefetch
    assert shipped(prefetchers) == {NoPrefetch, PreviousToken, PredictedUnion, oracle}
