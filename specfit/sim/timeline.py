"""Cycles as a timeline for Perfetto or ``chrome://tracing``: where the time of a run goes.

Each prompt is one process with two tracks: the device (draft, select, compute, commit) and the link
(the part of its copies that compute waits for). A pass waits layer by layer; here its wait is drawn
in one piece before its compute.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from specfit.core.decode import CycleRecord, DecodeResult

_DEVICE, _LINK = 0, 1


def write_timeline(results: Sequence[DecodeResult], path: Path, title: str) -> None:
    """Write the cycles of some requests as Chrome trace events.

    Parameters
    ----------
    path : Path
        JSON file; replaced in one step.
    title : str
        What the run was, and whether its seconds are measured or simulated.
    """
    events = [event for number, result in enumerate(results) for event in _events(number, result)]
    document = {"traceEvents": events, "displayTimeUnit": "ms", "otherData": {"title": title}}
    temporary = path.with_name(f".open-{path.name}")
    temporary.write_text(json.dumps(document), encoding="utf-8")
    temporary.replace(path)


def _events(number: int, result: DecodeResult) -> Iterator[dict[str, Any]]:
    yield _named("process_name", number, _DEVICE, f"prompt {number}")
    yield _named("thread_name", number, _DEVICE, "device")
    yield _named("thread_name", number, _LINK, "link")
    now_s = 0.0
    for index, cycle in enumerate(result.cycles):
        for part, track, seconds in _parts(cycle):
            if seconds > 0:
                yield {
                    "name": part,
                    "ph": "X",
                    "pid": number,
                    "tid": track,
                    "ts": now_s * 1e6,
                    "dur": seconds * 1e6,
                    "args": _figures(index, cycle),
                }
            now_s += seconds


def _parts(cycle: CycleRecord) -> tuple[tuple[str, int, float], ...]:
    timings = cycle.timings
    return (
        ("draft", _DEVICE, timings.draft_s),
        ("select", _DEVICE, timings.select_s),
        ("stall", _LINK, timings.stall_s),
        ("compute", _DEVICE, timings.compute_s),
        ("commit", _DEVICE, timings.commit_s),
    )


def _figures(index: int, cycle: CycleRecord) -> dict[str, int]:
    verification = cycle.outcome.verification
    return {
        "cycle": index,
        "drafted_levels": cycle.outcome.cycle.levels,
        "verified_nodes": cycle.num_verified,
        "committed_tokens": cycle.num_committed,
        "hits": int(verification.num_hits.sum()),
        "misses": int(verification.num_misses.sum()),
    }


def _named(kind: str, process: int, track: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": process, "tid": track, "args": {"name": name}}
