"""Replay: the same decisions as live, simulated seconds, and refusal of what was not recorded."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from specfit.core.backend import Backend, Request
from specfit.core.cache import caches, make_cache
from specfit.core.decode import DecodeLoop, DecodeResult
from specfit.core.errors import BackendError, TraceCoverageError
from specfit.core.selection import Selection
from specfit.core.tree import DraftPlan, DraftTree
from specfit.policies import Autoregressive, Eagle3
from specfit.sim.replay import ReplayBackend
from specfit.sim.trace import PositionRow, TraceReader, TraceWriter, strip_decisions
from specfit.testing.examples import example_profile
from specfit.testing.toy import toy_backend
from tests.unit.sim.traces import PLANS, POLICY, live, parts, replayed, write_run


def assert_same_decisions(ours: list[DecodeResult], theirs: list[DecodeResult]) -> None:
    assert [r.tokens for r in ours] == [r.tokens for r in theirs]
    assert [r.stop_reason for r in ours] == [r.stop_reason for r in theirs]
    for a, b in zip(ours, theirs, strict=True):
        assert len(a.cycles) == len(b.cycles)
        for x, y in zip(a.cycles, b.cycles, strict=True):
            np.testing.assert_array_equal(x.outcome.selection.mask, y.outcome.selection.mask)
            assert x.outcome.accepted == y.outcome.accepted
            for name in ("num_hits", "num_misses", "num_evictions"):
                np.testing.assert_array_equal(
                    getattr(x.outcome.verification, name), getattr(y.outcome.verification, name)
                )


@pytest.mark.parametrize("cache_spec", ["lru:50%", "lru:2", "lru:100%", "none"])
@pytest.mark.parametrize("policy", [Autoregressive(), POLICY, Eagle3(6, 1, 4)])
def test_a_run_replays_cycle_by_cycle_without_its_decisions(
    tmp_path: Path, policy: Autoregressive | Eagle3, cache_spec: str
) -> None:
    results = write_run(tmp_path / "run", policy=policy, cache_spec=cache_spec)
    strip_decisions(tmp_path / "run", tmp_path / "bare")
    again = replayed(tmp_path / "bare", policy, cache_spec)
    assert_same_decisions(results, again)
    # the toy backend's seconds come from the same profile, so even they agree
    for a, b in zip(results, again, strict=True):
        assert a.decode_s == pytest.approx(b.decode_s, rel=1e-12)


@pytest.mark.parametrize("cache_spec", ["lru:25%", "none"])
@pytest.mark.parametrize(
    "spec",
    [
        "autoregressive",
        "eagle3:depth=4,top_k=3,max_nodes=12",
        "eagle3:depth=2,top_k=3,max_nodes=5",
        "eagle3:depth=5,top_k=2,max_nodes=9",
    ],
)
def test_a_position_complete_trace_replays_policies_that_did_not_record_it(
    positions_trace: Path, spec: str, cache_spec: str
) -> None:
    from specfit.core.policy import policies

    assert_same_decisions(
        live(spec, cache_spec), replayed(positions_trace, policies.make(spec), cache_spec)
    )


@pytest.mark.parametrize("name", sorted(caches.names()))
def test_a_run_replays_with_every_shipped_cache(tmp_path: Path, name: str) -> None:
    """Each with a size at which it evicts, and one at which passes go in waves."""
    for size in ("50%", "2"):
        spec = f"{name}:{size}"
        results = write_run(tmp_path / f"run-{size}", cache_spec=spec)
        strip_decisions(tmp_path / f"run-{size}", tmp_path / f"bare-{size}")
        assert_same_decisions(results, replayed(tmp_path / f"bare-{size}", POLICY, spec))


def test_swapping_two_recorded_answers_changes_the_replay(tmp_path: Path) -> None:
    """A replay that did not read the trace would pass the tests above."""
    write_run(tmp_path / "run")
    trace = TraceReader(tmp_path / "run")
    with TraceWriter.create(tmp_path / "other", trace.metadata.finished(None)) as writer:
        for prompt in trace.prompts():
            for row in prompt.rows():
                routing = (row.answers.routing + 1) % trace.metadata.geometry.num_experts
                writer.add(replace(row, answers=replace(row.answers, routing=routing)))
            writer.end_prompt(prompt.row)
    ours, theirs = replayed(tmp_path / "run"), replayed(tmp_path / "other")
    misses = [
        [int(c.outcome.verification.num_misses.sum()) for r in rs for c in r.cycles]
        for rs in (ours, theirs)
    ]
    assert misses[0] != misses[1]


def test_an_uncovered_top_k_is_refused_with_the_plan_to_record(positions_trace: Path) -> None:
    with pytest.raises(TraceCoverageError, match=r"eagle3:depth=3,top_k=4"):
        replayed(positions_trace, Eagle3(depth=3, top_k=4, max_nodes=8))


@pytest.mark.parametrize("depth", [0, 1, 3, 4])
@pytest.mark.parametrize("kind", ["run", "positions"])
def test_a_whole_plan_is_its_levels(
    run_trace: Path, positions_trace: Path, kind: str, depth: int
) -> None:
    """`Backend.draft`, which this backend answers at once, equals asking level by level."""
    trace = TraceReader(run_trace if kind == "run" else positions_trace)
    drafted = []
    for draft in (ReplayBackend.draft, Backend.draft):
        backend = ReplayBackend(
            trace, make_cache("none", toy_backend().geometry), example_profile()
        )
        root = backend.start(next(backend.requests())).first_token
        before = backend.clock()
        tree, runs_out = draft(backend, DraftPlan(depth, 3, 99), DraftTree.root(root))
        backend.verify(tree, Selection.root_only(tree))
        drafted.append((tree, runs_out, backend.clock() - before))
    (ours, is_out, seconds), (theirs, was_out, in_all) = drafted
    for name in ("tokens", "parents", "log_probs", "ranks", "entropies"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        assert getattr(ours, name).dtype == getattr(theirs, name).dtype
    assert (is_out, ours.num_levels) == (was_out, depth)
    assert seconds == pytest.approx(in_all, rel=1e-12)


def test_an_uncovered_depth_is_refused(positions_trace: Path) -> None:
    with pytest.raises(TraceCoverageError, match="holds 4 levels of top_k=3"):
        replayed(positions_trace, Eagle3(depth=5, top_k=3, max_nodes=8))


def test_a_node_that_the_run_did_not_verify_is_refused(run_trace: Path) -> None:
    with pytest.raises(TraceCoverageError, match="no target response for node"):
        replayed(run_trace, Eagle3(depth=4, top_k=3, max_nodes=30))


def test_a_position_that_the_run_skipped_is_refused(run_trace: Path) -> None:
    with pytest.raises(TraceCoverageError, match="started none there"):
        replayed(run_trace, Autoregressive())


def test_an_unknown_request_is_refused(run_trace: Path) -> None:
    backend = ReplayBackend(
        TraceReader(run_trace), make_cache("none", toy_backend().geometry), example_profile()
    )
    with pytest.raises(TraceCoverageError, match="no such request"):
        backend.start(Request((7, 7), 5))


def test_verify_before_start_is_refused(run_trace: Path) -> None:
    backend = ReplayBackend(
        TraceReader(run_trace), make_cache("none", toy_backend().geometry), example_profile()
    )
    tree = DraftTree.root(1)
    with pytest.raises(BackendError, match="Call start first"):
        backend.verify(tree, Selection.root_only(tree))


def test_requests_may_be_replayed_in_any_order(run_trace: Path) -> None:
    toy = toy_backend()
    trace = TraceReader(run_trace)
    backend = ReplayBackend(trace, make_cache("lru:50%", toy.geometry), toy.profile)
    loop = DecodeLoop(backend, POLICY, **parts(toy))
    requests = [prompt.request for prompt in trace.prompts()]
    backwards = [loop.run(request) for request in reversed(requests)]
    assert_same_decisions(list(reversed(backwards)), replayed(run_trace))


def test_an_answer_that_contradicts_the_text_counts_as_a_near_tie(
    tmp_path: Path, positions_trace: Path
) -> None:
    trace = TraceReader(positions_trace)
    with TraceWriter.create(tmp_path / "tie", trace.metadata.finished(None)) as writer:
        for prompt in trace.prompts():
            for number, row in enumerate(prompt.rows()):
                assert isinstance(row, PositionRow)
                tokens = row.answers.target_tokens.copy()
                if number == 0:
                    tokens[0] = (tokens[0] + 1) % trace.metadata.geometry.vocab_size
                writer.add(replace(row, answers=replace(row.answers, target_tokens=tokens)))
            writer.end_prompt(prompt.row)
    toy = toy_backend()
    backend = ReplayBackend(
        TraceReader(tmp_path / "tie"), make_cache("lru:50%", toy.geometry), toy.profile
    )
    loop = DecodeLoop(backend, POLICY, **parts(toy))
    results = [loop.run(request) for request in backend.requests()]
    assert [r.tokens for r in results] == [r.tokens for r in replayed(positions_trace)]
    assert [tie.prompt for tie in backend.near_ties] == [0, 1, 2]
    assert all(tie.margin >= 0 for tie in backend.near_ties)


def test_the_trie_is_the_union_of_the_plans(positions_trace: Path) -> None:
    trace = TraceReader(positions_trace)
    assert trace.metadata.plans == PLANS
    for prompt in trace.prompts():
        rows = list(prompt.rows())
        assert len(rows) == len(prompt.text) - 1
        for row in rows:
            assert isinstance(row, PositionRow)
            assert set(np.concatenate(row.plan_nodes).tolist()) == set(range(len(row.trie)))
            keys = set(zip(row.trie.parents.tolist(), row.trie.tokens.tolist(), strict=True))
            assert len(keys) == len(row.trie)
            assert row.expanded.sum() == len(set(row.trie.parents[1:].tolist()))
