"""What the comparison with stock generation counts."""

from __future__ import annotations

import pytest

pytest.importorskip("torch", reason="the benchmark decodes")

from benchmarks import stock
from benchmarks.prefetch import block
from specfit.core.backend import Request
from specfit.core.decode import DecodeLoop
from specfit.testing.toy import toy_backend
from tests.unit.sim.traces import POLICY, REQUESTS, parts


def test_each_way_takes_the_sum_of_its_medians(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(stock.time, "perf_counter", lambda: now[0])

    def sleeps(seconds: list[float]) -> object:
        turns = iter(seconds * 100)

        def way(request: Request) -> None:
            now[0] += next(turns)

        return way

    ways = {"steady": sleeps([1.0]), "once late": sleeps([2.0] * 4 + [90.0])}
    took = stock.seconds_of(ways, REQUESTS[:1])  # type: ignore[arg-type]
    assert took == {"steady": 1.0, "once late": 2.0}


def test_overhead_is_what_is_neither_verified_drafted_nor_waited_for() -> None:
    backend = toy_backend()
    result = DecodeLoop(backend, POLICY, **parts(backend)).run(REQUESTS[0])
    timings = [cycle.timings for cycle in result.cycles]
    rest = sum(t.draft_s + t.stall_s + t.compute_s for t in timings)
    share = stock.overhead([result])
    assert 0 <= share < 1
    assert share * result.decode_s == pytest.approx(result.decode_s - rest)


def test_the_prefetch_table_leaves_out_decoding_without() -> None:
    row = {
        "cache": "lru:50%",
        "policy": "specfit",
        "prefetch": "previous",
        "over_none": [1.25, 1.0, 1.5],
        "copied_per_token": 3.0,
        "ahead_per_token": 2.0,
        "wasted_per_token": 1.0,
    }
    report = {"date": "D", "machine": "M", "num_prompts": 4, "new_tokens": 8, "command": "C"}
    text = block({**report, "rows": [row | {"prefetch": "none"}, row]})
    assert text.splitlines()[-1] == (
        "| `lru:50%` | specfit | `previous` | 1.25 [1.00, 1.50] | 3.0 | 2.0 | 1.0 |"
    )
    assert "`none`" not in text
