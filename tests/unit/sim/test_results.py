"""A table read back: the same ratios as the replay's own, seeds together, wrong files refused."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specfit.core.cache import make_cache
from specfit.core.errors import InvalidInputError
from specfit.core.policy import policies
from specfit.sim.metrics import Interval, measure, paired_speedup
from specfit.sim.results import Place, read_results, results_of
from specfit.sim.row import row_of
from specfit.testing.examples import example_geometry
from tests.unit.sim.traces import replayed

GEOMETRY = example_geometry()
TREE = "eagle3:depth=4,top_k=3,max_nodes=12"


def row(trace: Path, policy: str, *, key: int = 0, seconds: str = "simulated") -> dict[str, object]:
    results = replayed(trace, policies.make(policy), "lru:25%")
    return {
        "trace": str(trace),
        "policy": policy,
        "cache": "lru:25%",
        "link_bytes_per_s": 1e9,
        "policy_key": key,
        "seconds": seconds,
        "policy_is_reference": policy == TREE,
        **row_of(results, make_cache("lru:25%", GEOMETRY), GEOMETRY),
    }


def test_ratios_are_those_of_the_replay(positions_trace: Path) -> None:
    results = [
        replayed(positions_trace, policies.make(p), "lru:25%") for p in (TREE, "autoregressive")
    ]
    found = results_of([row(positions_trace, p) for p in (TREE, "autoregressive")])
    tree, plain = found
    for result, original in zip((tree, plain), results, strict=True):
        expected = measure(original, GEOMETRY.expert_bytes)
        assert vars(result.metrics) | {"calibration": 0} == vars(expected) | {"calibration": 0}
        assert result.metrics.tokens_per_s == pytest.approx(expected.tokens_per_s, rel=1e-12)
    assert isinstance(tree.speedup_over(plain), Interval)
    assert tree.speedup_over(plain) == paired_speedup(*results)


def test_rows_that_differ_in_the_seed_are_put_together(positions_trace: Path) -> None:
    rows = [row(positions_trace, TREE, key=key) for key in (0, 1)]
    (both,), (one,) = results_of(rows), results_of(rows[:1])
    assert both.metrics.num_committed == 2 * one.metrics.num_committed
    assert both.metrics.tokens_per_s == pytest.approx(one.metrics.tokens_per_s)
    assert both.belady_misses == 2 * (one.belady_misses or 0)
    assert [d.acceptance_rate for d in both.depths] == [d.acceptance_rate for d in one.depths]
    assert [u.experts_per_pass for u in both.unions] == [u.experts_per_pass for u in one.unions]
    assert len(both.tokens_and_seconds) == 2 * len(one.tokens_and_seconds)


def test_a_reference_is_not_the_best(positions_trace: Path) -> None:
    """Here the tree is said to look ahead, which leaves plain decoding as what can decode."""
    found = results_of([row(positions_trace, p) for p in (TREE, "autoregressive")])
    (place,) = found.places
    assert place == Place(str(positions_trace), 1e9, "lru:25%")
    assert found.best(place).policy == "autoregressive"
    assert results_of(found.rows[:1]).best(place).policy == TREE


def test_simulated_and_measured_seconds_are_not_mixed(positions_trace: Path) -> None:
    rows = [
        row(positions_trace, "autoregressive"),
        row(positions_trace, TREE, seconds="measured"),
    ]
    with pytest.raises(InvalidInputError, match="measured and simulated"):
        results_of(rows)


def test_what_is_no_sweep_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="finished sweep"):
        read_results(tmp_path)
    file = tmp_path / "results.parquet"
    file.write_bytes(b"PAR1 no")
    with pytest.raises(InvalidInputError, match="cannot be read"):
        read_results(tmp_path)
    pq.write_table(pa.table({"trace": ["a"]}), file)
    with pytest.raises(InvalidInputError, match="lacks policy"):
        read_results(file)
