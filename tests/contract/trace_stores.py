"""The shipped trace format as the store that the trace contract asks for."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from specfit.core.backend import Backend, Request
from specfit.core.cache import make_cache
from specfit.core.cost import ProfileCost
from specfit.core.decode import DecodeLoop, DecodeResult
from specfit.core.policy import Policy
from specfit.sim.record_run import RunRecorder
from specfit.sim.replay import replay
from specfit.sim.trace import CycleRow, TraceReader, TraceWriter, metadata_of, strip_decisions
from specfit.sim.trace.rows import Row
from specfit.testing.examples import DrafterAcceptance, UniformPredictor, example_profile
from specfit.testing.trace_contract import RecordedCycle, TraceStore


class ParquetStore(TraceStore):
    """A folder of Parquet parts."""

    def record(
        self, folder: Path, backend: Backend, policy: Policy, requests: Sequence[Request]
    ) -> list[DecodeResult]:
        with TraceWriter.create(folder, metadata_of(backend, "run"), part_bytes=1) as writer:
            loop = DecodeLoop(
                backend,
                policy,
                ProfileCost(example_profile()),
                UniformPredictor(backend.geometry),
                DrafterAcceptance(),
                [RunRecorder(writer)],
            )
            return [loop.run(request) for request in requests]

    def stream(self, folder: Path) -> Iterator[RecordedCycle]:
        for prompt in TraceReader(folder).prompts():
            for row in prompt.rows():
                yield recorded(row)

    def load(self, folder: Path) -> list[RecordedCycle]:
        trace = TraceReader(folder)
        prompts = list(trace.prompts())
        return [recorded(row) for prompt in prompts for row in list(prompt.rows())]

    def replay(self, folder: Path, policy: Policy, cache: str) -> list[DecodeResult]:
        profile = example_profile()
        with tempfile.TemporaryDirectory() as temporary:
            bare = Path(temporary) / "bare"
            strip_decisions(folder, bare)
            trace = TraceReader(bare)
            geometry = trace.metadata.geometry
            return list(
                replay(
                    trace,
                    policy,
                    make_cache(cache, geometry),
                    profile,
                    cost=ProfileCost(profile),
                    predictor=UniformPredictor(geometry),
                    acceptance=DrafterAcceptance(),
                )
            )


def recorded(row: Row) -> RecordedCycle:
    assert isinstance(row, CycleRow) and row.decisions is not None, "a run's cycle"
    return RecordedCycle(
        prompt=row.prompt,
        tree=row.tree,
        nodes=row.decisions.selected.astype(np.int64),
        target_tokens=row.answers.target_tokens,
        routing=row.answers.routing,
        committed=tuple(row.decisions.committed.tolist()),
    )
