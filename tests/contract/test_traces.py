"""The shipped trace format keeps the trace contract."""

from __future__ import annotations

from specfit.testing.trace_contract import TraceContract
from tests.contract.trace_stores import ParquetStore


class TestParquet(TraceContract):
    make = staticmethod(ParquetStore)
