"""The trace format: a folder of Parquet parts and `metadata.json`."""

from specfit.sim.trace.check import TraceReport, check_trace, repair_trace, strip_decisions
from specfit.sim.trace.metadata import TraceMetadata, metadata_of
from specfit.sim.trace.reader import RecordedPrompt, TraceReader
from specfit.sim.trace.rows import (
    Answers,
    CycleRow,
    Decisions,
    PositionRow,
    PromptRow,
)
from specfit.sim.trace.writer import TraceWriter

__all__ = [
    "Answers",
    "CycleRow",
    "Decisions",
    "PositionRow",
    "PromptRow",
    "RecordedPrompt",
    "TraceMetadata",
    "TraceReader",
    "TraceReport",
    "TraceWriter",
    "check_trace",
    "metadata_of",
    "repair_trace",
    "strip_decisions",
]
