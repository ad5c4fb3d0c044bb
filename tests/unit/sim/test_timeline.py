"""A timeline holds every second of a run once, in order, on the right track."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

import pytest

from specfit.sim.timeline import write_timeline
from tests.unit.sim.traces import replayed


def test_a_timeline_adds_up_to_the_run(run_trace: Path, tmp_path: Path) -> None:
    results = replayed(run_trace)
    write_timeline(results, tmp_path / "timeline.json", "toy, simulated")
    assert [path.name for path in tmp_path.iterdir()] == ["timeline.json"]
    document = json.loads((tmp_path / "timeline.json").read_text("utf-8"))
    assert document["otherData"] == {"title": "toy, simulated"}
    spans = [event for event in document["traceEvents"] if event["ph"] == "X"]
    by_prompt = defaultdict(list)
    for span in spans:
        by_prompt[span["pid"]].append(span)
    for number, result in enumerate(results):
        of_prompt = by_prompt[number]
        assert sum(s["dur"] for s in of_prompt) == pytest.approx(result.decode_s * 1e6)
        stalls = [s["dur"] for s in of_prompt if s["name"] == "stall"]
        assert sum(stalls) == pytest.approx(sum(c.timings.stall_s for c in result.cycles) * 1e6)
        assert {s["tid"] for s in of_prompt if s["name"] == "stall"} == {1}
        ends = [s["ts"] + s["dur"] for s in of_prompt]
        assert all(s["ts"] >= end - 1e-6 for s, end in zip(of_prompt[1:], ends, strict=False))
        committed = {s["args"]["cycle"]: s["args"]["committed_tokens"] for s in of_prompt}
        assert sum(committed.values()) == result.num_decoded
