"""Killing a recording at any moment loses at most the open part, and the reader says so."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from specfit.core.errors import TraceFormatError
from specfit.sim.trace import TraceReader, check_trace

NUM_KILLS = 50

# Each child records the same endless trace; the parent imports once and forks, so kills are cheap.
RECORD = """
import os, sys
from pathlib import Path
from specfit.core.backend import Request
from specfit.core.tree import DraftPlan
from specfit.sim.record_positions import record_positions
from specfit.sim.trace import TraceWriter, metadata_of
from specfit.testing.toy import toy_backend

plans = [DraftPlan(3, 2, 16)]
requests = [Request(tuple(range(1, 4 + i % 9)), 12) for i in range(10_000)]

def record(folder, requests):
    backend = toy_backend()
    metadata = metadata_of(backend, "positions", plans)
    with TraceWriter.create(folder, metadata, part_bytes=1) as writer:
        record_positions(backend, requests, plans, writer)

record(Path(sys.argv[1]), requests[:1])  # compiles
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        record(Path(line.strip()), requests)
    print(child, flush=True)
"""


@pytest.mark.slow
def test_killed_recordings_open_and_say_what_is_missing(tmp_path: Path) -> None:
    rng = np.random.default_rng(5)
    command = [sys.executable, "-c", RECORD, str(tmp_path / "first")]
    num_prompts = []
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdin is not None and parent.stdout is not None, "pipes were asked for"
        for kill in range(NUM_KILLS):
            folder = tmp_path / f"trace-{kill}"
            parent.stdin.write(f"{folder}\n")
            parent.stdin.flush()
            child = int(parent.stdout.readline())
            wait_for_prompts(folder, int(rng.integers(0, 5)))
            time.sleep(float(rng.exponential(0.02)))
            os.kill(child, signal.SIGKILL)
            num_prompts.append(check_killed(folder))
    assert max(num_prompts) > 2, "the kills came too early to test anything"
    assert len(set(num_prompts)) > 2, "the kills came at one moment"


def wait_for_prompts(folder: Path, number: int) -> None:
    """Wait until so many prompts are published, so that a slow machine is killed as late."""
    deadline = time.monotonic() + 60
    while len(list(folder.glob("prompts-*"))) < number:
        assert time.monotonic() < deadline, "the recording does not get on"
        time.sleep(0.002)


def check_killed(folder: Path) -> int:
    """Return the prompts that survived; every one of them must be whole."""
    if not (folder / "metadata.json").exists():
        with pytest.raises(TraceFormatError, match="Is this a trace"):
            TraceReader(folder)
        return 0
    trace = TraceReader(folder)
    assert any("was not finished" in text for text in trace.missing)
    for number, prompt in enumerate(trace.prompts()):
        assert prompt.index == number
        assert len(list(prompt.rows())) == len(prompt.text) - 1
    report = check_trace(folder)
    assert report.num_good == trace.num_prompts
    return trace.num_prompts
